"""What the provider was asked and what it answered, as digests: the second witness of a session.

A content block has one digest whichever way it travels: as the provider streams it, as it gives it
whole, and as the harness tells it back in the next request. Markers that move from request to
request (`cache_control`) are left out of it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LONGEST_JSON_ANSWER = 32 * 1024 * 1024
LONGEST_EVENT = 32 * 1024 * 1024


def canonical(value: Any) -> bytes:
    """One spelling of a JSON value: keys sorted, no spaces, ASCII, numbers as JavaScript has them.

    The harness keeps every number as a double, so a provider's `1.0` is told back as `1` and
    `12345678901234567890` as `12345678901234567000`.
    """
    return json.dumps(
        _doubles(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True
    ).encode()


def _doubles(value: Any) -> Any:
    if isinstance(value, dict):
        return _same_or(value, {key: _doubles(item) for key, item in value.items()})
    if isinstance(value, list):
        return _same_or(value, [_doubles(item) for item in value])
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if type(value) is int and abs(value) > 1 << 53:
        try:
            return int(float(value))
        except OverflowError:
            return value
    return value


def _same_or(value: Any, made: Any) -> Any:
    """The value itself where what was made of it has the very same items: a body that is all small
    objects would otherwise stand in memory three times."""
    if len(value) != len(made):
        return made
    pairs = (
        zip(value.values(), made.values(), strict=True)
        if isinstance(value, dict)
        else zip(value, made, strict=True)
    )
    return value if all(item is its for item, its in pairs) else made


def digest(value: Any) -> str:
    """`sha256:` and the hex digest of a JSON value's canonical spelling."""
    return "sha256:" + hashlib.sha256(canonical(value)).hexdigest()


def block_digest(block: Mapping[str, Any]) -> str:
    """The digest of one content block, over the members that are its substance."""
    kind = block.get("type")
    match kind:
        case "text":
            substance: Any = {"type": kind, "text": block.get("text", "")}
        case "thinking":
            substance = {
                "type": kind,
                "thinking": block.get("thinking", ""),
                "signature": block.get("signature", ""),
            }
        case "redacted_thinking":
            substance = {"type": kind, "data": block.get("data", "")}
        case "tool_use":
            substance = {
                "type": kind,
                "id": block.get("id"),
                "name": block.get("name"),
                "input": block.get("input"),
            }
        case "tool_result":
            substance = {
                "type": kind,
                "tool_use_id": block.get("tool_use_id"),
                "content": [_plain(each) for each in blocks_of(block.get("content"))],
                "is_error": block.get("is_error") is True,
            }
        case _:
            substance = _plain(block)
    return digest(substance)


def blocks_of(content: Any) -> Sequence[Any]:
    """A message's content as a list of blocks; a bare string is one text block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return _same_or(
            value, {key: _plain(item) for key, item in value.items() if key != "cache_control"}
        )
    if isinstance(value, list):
        return _same_or(value, [_plain(item) for item in value])
    return value


# The first block of Claude Code's system prompt. It names the request before it and a checksum of
# this one, so it differs in every request; the rest of the prompt was the same in every request of
# one session and of its retries, and another one in every kind of subagent.
BILLING = "x-anthropic-billing-header:"
_SESSION_AT_THE_END = re.compile(r"_session_([0-9a-f-]{36})\Z")


def request_members(document: Mapping[str, Any]) -> dict[str, Any]:
    """What the log says of a request's body: whose it is, and each message's block digests.

    `head` is made of what stays the same in all requests of one conversation: the model and the
    system prompt without its billing line. Tools are apart: Claude Code 2.1.332 sends 14, and 16
    after ToolSearch loaded two. `max_tokens` is apart as well.
    """
    messages, tools = document.get("messages"), document.get("tools")
    limit = document.get("max_tokens")
    return {
        "model": _short(document.get("model")),
        "stream": document.get("stream") is True,
        "head": digest({"model": document.get("model"), "system": _system(document)}),
        "tools": len(tools) if isinstance(tools, list) else 0,
        "tools_digest": digest([_plain(tools), _plain(document.get("tool_choice"))]),
        "max_tokens": limit if type(limit) is int else None,
        "session": _session(document.get("metadata")),
        "follows": None,
        "messages": [
            [_short(message.get("role")), *map(_told, blocks_of(message.get("content")))]
            for message in (messages if isinstance(messages, list) else [])
            if isinstance(message, dict)
        ],
    }


def _system(document: Mapping[str, Any]) -> list[Any]:
    return [
        _plain(block)
        for block in blocks_of(document.get("system"))
        if not (isinstance(block, dict) and str(block.get("text", "")).startswith(BILLING))
    ]


def _session(metadata: Any) -> str | None:
    """The session's own word for itself, in `metadata.user_id`.

    Claude Code 2.1.332 writes a JSON text with a `session_id` there, and 2.0.77 a name that ends in
    `_session_` and the id.
    """
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    if not isinstance(user, str):
        return None
    if found := _SESSION_AT_THE_END.search(user):
        return found[1]
    try:
        return _short(json.loads(user)["session_id"])
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def _told(block: Any) -> str | list[str]:
    """A block of a request: its digest, or `[digest, bare, id]` where there is more to say.

    `bare` is the digest without what the harness hangs on what it tells; it is empty for a block
    that is nothing else. `id` is a tool result's, else empty.
    """
    if not isinstance(block, dict):
        return digest(block)
    exact, plain = block_digest(block), bare_digest(block)
    if block.get("type") == "tool_result":
        return [exact, plain, _short(block.get("tool_use_id")) or ""]
    return exact if exact == plain else [exact, plain, ""]


_REMINDER = "<system-reminder>"
_REMINDED = "</system-reminder>"


def bare_text(text: str) -> str:
    """A text without the reminders at its end and without white space around it.

    Claude Code hangs `<system-reminder>...</system-reminder>` on the last result that it tells,
    and trims what stands before; where it joins two texts the first one gains a line's end.
    """
    text = text.strip()
    while text.endswith(_REMINDED):
        begin = text.rfind(_REMINDER)
        if begin < 0:
            break
        text = text[:begin].strip()
    return text


def bare_digest(block: Mapping[str, Any]) -> str:
    """A text's or a tool result's digest over its bare text; the block's own for any other."""
    if block.get("type") == "text":
        text = bare_text(str(block.get("text", "")))
        return block_digest({"type": "text", "text": text}) if text else ""
    if block.get("type") != "tool_result":
        return block_digest(block)
    items: list[Any] = []
    for item in blocks_of(block.get("content")):
        if isinstance(item, dict) and item.get("type") == "text":
            text = bare_text(str(item.get("text", "")))
            if text:
                items.append({"type": "text", "text": text})
        else:
            items.append(item)
    return block_digest({**block, "content": items})


class Histories:
    """Keeps the log short: of a request's messages only those that no recent request had told."""

    KEPT = 16
    # What all that is kept may hold together. A block's digests take some 450 bytes here.
    BLOCKS = 100_000

    def __init__(self) -> None:
        self._kept: dict[int, list[list[Any]]] = {}

    def shorten(self, number: int, said: dict[str, Any]) -> dict[str, Any]:
        """`said` with `follows`: how many messages are those of which request; None for none."""
        messages = said["messages"]
        best, shared = None, 0
        for other, told in self._kept.items():
            count = 0
            for mine, its in zip(messages, told, strict=False):
                if mine != its:
                    break
                count += 1
            if count and count >= shared:
                best, shared = other, count
        self._kept[number] = messages
        while len(self._kept) > self.KEPT or self._blocks() > self.BLOCKS:
            del self._kept[min(self._kept)]
        follows = None if best is None else {"request": best, "messages": shared}
        return {**said, "follows": follows, "messages": messages[shared:]}

    def _blocks(self) -> int:
        return sum(len(message) for told in self._kept.values() for message in told)


def _short(value: Any) -> str | None:
    return value[:100] if isinstance(value, str) else None


@dataclass
class AnswerReader:
    """Reads one answer while it streams by: SSE or one JSON object. Feed it, then ask `members`.

    Memory: the block that is underway, or the whole of a JSON answer.
    """

    event_stream: bool
    message: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    error: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    usage_start: dict[str, Any] = field(default_factory=dict)
    blocks: list[dict[str, Any]] = field(default_factory=list)
    whole: bool = False
    readable: bool = True
    _buffer: bytearray = field(default_factory=bytearray)
    _open: dict[int, dict[str, Any]] = field(default_factory=dict)
    _parts: dict[int, list[str]] = field(default_factory=dict)

    def feed(self, data: bytes) -> None:
        """Bytes of the body, in any split; an empty `data` says that they ended."""
        self._buffer += data
        if not self.event_stream:
            if len(self._buffer) > LONGEST_JSON_ANSWER:
                self._unreadable()
            elif not data and self.readable:
                self._one_object()
            return
        if not self.readable:
            self._buffer.clear()
            return
        start = 0
        while (end := self._buffer.find(b"\n", start)) >= 0:
            line = bytes(self._buffer[start:end]).rstrip(b"\r")
            start = end + 1
            if line.startswith(b"data:"):
                self._event(line[5:].strip())
        del self._buffer[:start]
        if len(self._buffer) > LONGEST_EVENT:
            self._unreadable()

    def members(self) -> dict[str, Any]:
        """What the log says of the answer, so far as it came."""
        self._break_off()
        return {
            "message": self.message,
            "model_served": self.model,
            "stop_reason": self.stop_reason,
            "error": self.error,
            "usage": self.usage,
            "usage_start": self.usage_start,
            "blocks": self.blocks,
            "whole": self.whole,
            "readable": self.readable,
        }

    def _unreadable(self) -> None:
        self.readable = False
        self._buffer.clear()

    def _one_object(self) -> None:
        try:
            value = json.loads(self._buffer)
        except (ValueError, RecursionError):
            self._unreadable()
            return
        if not isinstance(value, dict):
            self._unreadable()
            return
        if value.get("type") == "error":
            self._error(value)
            return
        self._message(value)
        self._usage(value)
        self.usage_start = dict(self.usage)
        if isinstance(value.get("input_tokens"), int):
            self.usage["input_tokens"] = value["input_tokens"]
        for block in blocks_of(value.get("content")):
            if isinstance(block, dict):
                self._finished(block)
        self.whole = True

    def _event(self, data: bytes) -> None:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            self._unreadable()
            return
        if not isinstance(value, dict):
            self._unreadable()
            return
        index = value.get("index")
        match value.get("type"):
            case "message_start" if isinstance(value.get("message"), dict):
                self._message(value["message"])
                self._usage(value["message"])
                self.usage_start = dict(self.usage)
            case "content_block_start" if isinstance(
                value.get("content_block"), dict
            ) and isinstance(index, int):
                self._open[index] = dict(value["content_block"])
                self._parts[index] = []
            case "content_block_delta" if index in self._open:
                self._delta(index, value.get("delta"))
            case "content_block_stop" if index in self._open:
                self._stop(index)
            case "message_delta":
                delta = value.get("delta")
                if isinstance(delta, dict) and isinstance(delta.get("stop_reason"), str):
                    self.stop_reason = _short(delta["stop_reason"])
                self._usage(value)
            case "message_stop":
                self.whole = True
            case "error":
                self._error(value)

    def _delta(self, index: int, delta: Any) -> None:
        if not isinstance(delta, dict):
            return
        block, parts = self._open[index], self._parts[index]
        match delta.get("type"):
            case "text_delta":
                parts.append(str(delta.get("text", "")))
            case "thinking_delta":
                parts.append(str(delta.get("thinking", "")))
            case "input_json_delta":
                parts.append(str(delta.get("partial_json", "")))
            case "signature_delta":
                block["signature"] = str(block.get("signature", "")) + str(delta.get("signature"))
            case _:
                block.setdefault("deltas", []).append(delta)

    def _stop(self, index: int) -> None:
        block, text = self._open.pop(index), "".join(self._parts.pop(index))
        match block.get("type"):
            case "text":
                block["text"] = str(block.get("text", "")) + text
            case "thinking":
                block["thinking"] = str(block.get("thinking", "")) + text
            case _ if text:
                # Input that is no JSON keeps its raw text; the harness tells it back another way.
                try:
                    block["input"] = json.loads(text)
                except (ValueError, RecursionError):
                    block["input"] = text
        self._finished(block)

    def _break_off(self) -> None:
        """Note the texts that were underway at the end: the harness may show what it had of one."""
        for index in sorted(self._open):
            if self._open[index].get("type") in ("text", "thinking"):
                self._stop(index)
                self.blocks[-1]["broken_off"] = True
        self._open.clear()
        self._parts.clear()

    def _finished(self, block: Mapping[str, Any]) -> None:
        kind = _short(block.get("type"))
        entry: dict[str, Any] = {"type": kind, "digest": block_digest(block)}
        if kind == "text" and not str(block.get("text", "")).strip():
            # The harness shows no text of white space alone, and does not tell it back.
            entry["blank"] = True
        if kind == "tool_use":
            entry["id"] = _short(block.get("id"))
            entry["name"] = _short(block.get("name"))
            if isinstance(block.get("input"), dict):
                entry["input"] = {
                    _member(name): _forms(value)
                    for name, value in list(block["input"].items())[:LONGEST_INPUT]
                }
        self.blocks.append(entry)

    def _message(self, message: Mapping[str, Any]) -> None:
        self.message = _short(message.get("id"))
        self.model = _short(message.get("model"))
        self.stop_reason = _short(message.get("stop_reason"))

    def _usage(self, holder: Mapping[str, Any]) -> None:
        usage = holder.get("usage")
        if isinstance(usage, dict):
            self.usage.update(numbers(usage))

    def _error(self, value: Mapping[str, Any]) -> None:
        error = value.get("error")
        self.error = _short(error.get("type")) if isinstance(error, dict) else "unknown"


LONGEST_INPUT = 60
_NAME = re.compile(r"[A-Za-z_-][A-Za-z0-9_-]{0,39}")
_CHANGE_OF_DIRECTORY = re.compile(r"cd (?:/[^\s\"'`$;&|<>*?(){}\[\]!#]{0,1023}) && ")
_TRAILING = re.compile(r"[^\S\r\n]+(?=[\r\n]|\Z)")
_ESCAPED = re.compile(
    r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|\\u([0-9a-f]{4})", re.IGNORECASE
)


def _member(name: str) -> str:
    """A member's name as the log may show it: a tool's own, else a digest, for it is prose."""
    return name if _NAME.fullmatch(name) else digest(name)


def _forms(value: Any) -> dict[str, str]:
    """The digests of one member of a tool's input: `given`, and as the harness may change it.

    Measured in Claude Code 2.1.332: `trailing`, white space at the ends of lines is taken out of
    what Write and Edit put into a file; `directory`, a leading change to the directory a shell is
    in anyway; `parsed`, text that is a number, a truth, a list or an object becomes it; `escapes`,
    a doubly escaped character becomes the character.
    """
    forms = {"given": digest(value)}
    if not isinstance(value, str):
        return forms
    forms["trailing"] = digest(_TRAILING.sub("", value))
    if found := _CHANGE_OF_DIRECTORY.match(value):
        forms["directory"] = digest(value[found.end() :])
    if "\\u" in value:
        forms["escapes"] = digest(_ESCAPED.sub(_unescaped, value))
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        parsed = value
    if not isinstance(parsed, str):
        forms["parsed"] = digest(parsed)
    return {
        form: found for form, found in forms.items() if form == "given" or found != forms["given"]
    }


def _unescaped(found: re.Match[str]) -> str:
    high, low, one = found.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + (int(low, 16) - 0xDC00))
    code = int(one, 16)
    kept = 0xD800 <= code <= 0xDFFF or code <= 31 or 127 <= code <= 159
    return found.group() if kept else chr(code)


def numbers(usage: Mapping[str, Any]) -> dict[str, Any]:
    """The counts of a usage object, one level of nesting deep; words longer than a name are not."""
    kept: dict[str, Any] = {}
    for key, value in usage.items():
        if type(value) in (int, float) or (isinstance(value, str) and len(value) <= 40):
            kept[key[:60]] = value
        elif isinstance(value, dict):
            kept[key[:60]] = {
                each[:60]: count for each, count in value.items() if type(count) in (int, float)
            }
    return kept


class SecretCutter:
    """Lets a stream of bytes through until the secret begins in it, however it is split.

    Holds back only a tail that could be the secret's beginning, so nothing else is delayed.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._held = b""
        self.found = False

    def feed(self, data: bytes) -> bytes:
        """The bytes that may go on now; with an empty `data`, what was held back."""
        if self.found:
            return b""
        if not self._secret:
            return data
        joined = self._held + data
        self._held = b""
        at = joined.find(self._secret)
        if at >= 0:
            self.found = True
            return joined[:at]
        if not data:
            return joined
        for length in range(min(len(self._secret) - 1, len(joined)), 0, -1):
            if joined.endswith(self._secret[:length]):
                self._held = joined[-length:]
                return joined[:-length]
        return joined
