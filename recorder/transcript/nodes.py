"""YAML as plain nodes with their lines: no tag, no anchor, no alias, and little depth.

A block says what it says in one way only. What a YAML reader would resolve (``2026-10-03`` to a
date, ``no`` to false) stays the text that is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

MAXIMUM_DEPTH = 8

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")


class NodeError(Exception):
    """The text is not such a block; ``line`` counts from 1 within it."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line
        self.why = why


@dataclass(frozen=True, slots=True)
class Scalar:
    line: int
    text: str
    plain: bool

    @property
    def is_null(self) -> bool:
        return self.plain and self.text in _NULL

    @property
    def whole_number(self) -> int | None:
        """The number of a plain decimal without leading zeros, or None."""
        return int(self.text) if self.plain and _WHOLE.fullmatch(self.text) else None


@dataclass(frozen=True, slots=True)
class Items:
    line: int
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Members:
    line: int
    pairs: tuple[tuple[Scalar, Node], ...]


Node = Scalar | Items | Members


def read_nodes(text: str) -> Node:
    """The one document of the text. Raises ``NodeError``."""
    if "CSafeLoader" in dir(yaml):
        try:
            return _Composer(_events(text, yaml.CSafeLoader)).document()
        except yaml.YAMLError:
            # libyaml knows no escape of half a surrogate pair; the other reader does.
            pass
    try:
        return _Composer(_events(text, yaml.SafeLoader)).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise NodeError(mark.line + 1 if mark else 1, error.problem or "is not YAML") from error
    except yaml.YAMLError as error:
        raise NodeError(1, " ".join(str(error).split())) from error


def _events(text: str, loader: Any) -> Iterator[Any]:
    events: Iterator[Any] = yaml.parse(text, Loader=loader)
    return events


class _Composer:
    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events

    def document(self) -> Node:
        next(self._events)
        start = next(self._events)
        if isinstance(start, yaml.StreamEndEvent):
            raise NodeError(1, "holds nothing")
        root = self._node(next(self._events), 1)
        next(self._events)
        following = next(self._events)
        if not isinstance(following, yaml.StreamEndEvent):
            raise NodeError(following.start_mark.line + 1, "holds a second document")
        return root

    def _node(self, event: Any, depth: int) -> Node:
        line = event.start_mark.line + 1
        if depth > MAXIMUM_DEPTH:
            raise NodeError(line, "is nested too deeply")
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise NodeError(line, "holds an anchor or an alias, which no block does")
        if event.tag is not None:
            raise NodeError(line, f"holds the tag {event.tag}, which no block does")
        if isinstance(event, yaml.ScalarEvent):
            return Scalar(line, event.value, not event.style)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Node] = []
            while not isinstance(inner := next(self._events), yaml.SequenceEndEvent):
                items.append(self._node(inner, depth + 1))
            return Items(line, tuple(items))
        pairs: list[tuple[Scalar, Node]] = []
        while not isinstance(inner := next(self._events), yaml.MappingEndEvent):
            key = self._node(inner, depth + 1)
            if not isinstance(key, Scalar):
                raise NodeError(key.line, "holds a key that is not a name")
            pairs.append((key, self._node(next(self._events), depth + 1)))
        return Members(line, tuple(pairs))
