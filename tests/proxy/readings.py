"""A second opinion on a body: JSON as other readers read it, and what the provider would do then.

Written from RFC 8259 and from what readers are known to differ in, without the decision's code: a
reader is strict about the grammar, and loose as it is told about keys that stand twice and about
how a key is spelt.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_SPACE = re.compile(r"[ \t\n\r]*")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class NotJsonError(ValueError):
    """Not JSON by the grammar."""


@dataclass(frozen=True)
class Reader:
    """How one kind of reader differs: which of two equal keys counts, how it takes a key."""

    name: str
    last_wins: bool
    key: Callable[[str], str]

    def read(self, data: bytes) -> Any:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise NotJsonError from error
        value, at = self._value(text, _space(text, 0), 0)
        if _space(text, at) != len(text):
            raise NotJsonError
        return value

    def _value(self, text: str, at: int, depth: int) -> tuple[Any, int]:
        if depth > 200 or at >= len(text):
            raise NotJsonError
        first = text[at]
        if first == "{":
            return self._object(text, at, depth)
        if first == "[":
            return self._array(text, at, depth)
        if first == '"':
            return _string(text, at)
        for word, value in (("true", True), ("false", False), ("null", None)):
            if text.startswith(word, at):
                return value, at + len(word)
        found = _NUMBER.match(text, at)
        if not found:
            raise NotJsonError
        return float(found.group()), found.end()

    def _array(self, text: str, at: int, depth: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        at = _space(text, at + 1)
        if text[at : at + 1] == "]":
            return items, at + 1
        while True:
            value, at = self._value(text, at, depth + 1)
            items.append(value)
            at = _space(text, at)
            if text[at : at + 1] == "]":
                return items, at + 1
            if text[at : at + 1] != ",":
                raise NotJsonError
            at = _space(text, at + 1)

    def _object(self, text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
        members: dict[str, Any] = {}
        at = _space(text, at + 1)
        if text[at : at + 1] == "}":
            return members, at + 1
        while True:
            if text[at : at + 1] != '"':
                raise NotJsonError
            key, at = _string(text, at)
            key = self.key(key)
            at = _space(text, at)
            if text[at : at + 1] != ":":
                raise NotJsonError
            value, at = self._value(text, _space(text, at + 1), depth + 1)
            if self.last_wins or key not in members:
                members[key] = value
            at = _space(text, at)
            if text[at : at + 1] == "}":
                return members, at + 1
            if text[at : at + 1] != ",":
                raise NotJsonError
            at = _space(text, at + 1)


def _space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _string(text: str, at: int) -> tuple[str, int]:
    at += 1
    made: list[str] = []
    while True:
        if at >= len(text) or text[at] < " ":
            raise NotJsonError
        letter = text[at]
        at += 1
        if letter == '"':
            joined = "".join(made)
            # Halves of one character, escaped one by one, are that character.
            return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), at
        if letter != "\\":
            made.append(letter)
            continue
        kind = text[at : at + 1]
        at += 1
        if kind == "u":
            digits = text[at : at + 4]
            if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                raise NotJsonError
            made.append(chr(int(digits, 16)))
            at += 4
        elif kind in _ESCAPES:
            made.append(_ESCAPES[kind])
        else:
            raise NotJsonError


def exact(key: str) -> str:
    return key


def any_case(key: str) -> str:
    """Go's encoding/json finds a field in any case."""
    return key.casefold()


def to_the_null(key: str) -> str:
    """A reader in C ends a text at its first null."""
    return key.partition("\0")[0]


def composed(key: str) -> str:
    return unicodedata.normalize("NFKC", key)


def trimmed(key: str) -> str:
    return key.strip()


READERS: Sequence[Reader] = [
    Reader(f"{key.__name__}, {'last' if last else 'first'} wins", last, key)
    for last in (True, False)
    for key in (exact, any_case, to_the_null, composed, trimmed)
]


def reaches_out(document: Any) -> Iterator[str]:
    """What of a body would make Anthropic's provider reach out, by its documentation."""
    if not isinstance(document, dict):
        yield "no object"
        return
    for key in ("mcp_servers", "container"):
        if key in document:
            yield key
    tools = document.get("tools", [])
    for tool in tools if isinstance(tools, list) else []:
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind not in (None, "custom"):
            yield f"tool {kind}"
    if not str(document.get("model", "")).startswith("claude-"):
        yield "another model"
    for name, value in document.items():
        items = value if isinstance(value, list) else [value]
        for item in items:
            if name == "tools" and isinstance(item, dict):
                item = {key: each for key, each in item.items() if key != "input_schema"}
            yield from _fetches(item)


def _fetches(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _fetches(item)
    if not isinstance(value, dict):
        return
    kind = value.get("type")
    if kind == "container_upload":
        yield "an upload"
    source = value.get("source")
    if isinstance(source, dict) and source.get("type") in ("url", "file"):
        yield f"a source of type {source['type']}"
    for key, item in value.items():
        if not (kind == "tool_use" and key == "input"):
            yield from _fetches(item)
