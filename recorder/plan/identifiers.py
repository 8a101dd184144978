"""The pattern of a corpus' identifiers: a small grammar whose matching is cheap whatever it reads.

A session chooses the bytes that the pattern is held against. With the whole of regular
expressions one file could hold the driver for hours (``(A+)+B`` over 40 letters A), so a pattern
is read by the grammar below, and one that could match the same text in many ways is refused.

A pattern is a sequence of pieces: a character, an escaped one, ``\\d``, ``\\w`` or a class
``[A-Z0-9]``, each once or with ``?``, ``+``, ``*``, ``{n}`` or ``{n,m}``; and groups of
alternatives ``(?:ADR|RFC)``, which are not repeated. ``\\b`` may stand at either end.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

LONGEST_PATTERN = 400
LONGEST_REPEAT = 255
"""How often a piece is repeated at most; ``+`` and ``*`` mean up to that."""
MOST_STEPS = 2048
"""How many characters a pattern may look at from one start; 2,000 took 3 s a megabyte at worst."""

_DIGITS = frozenset(map(ord, string.digits))
_WORD = _DIGITS | frozenset(map(ord, string.ascii_letters + "_"))
_NAMED = {"d": _DIGITS, "w": _WORD}
_SPECIAL = frozenset("\\.^$*+?{}[]|()")
_QUANTIFIER = re.compile(r"[?+*]|\{([0-9]{1,3})(?:,([0-9]{1,3}))?\}")


class PatternError(ValueError):
    """The pattern is not of the grammar, or could cost too much. The text says why."""


@dataclass(frozen=True)
class _Piece:
    """One of ``characters`` (ASCII), ``least`` to ``most`` times."""

    characters: frozenset[int]
    least: int = 1
    most: int = 1


@dataclass(frozen=True)
class _Group:
    branches: tuple[tuple[_Piece | _Group, ...], ...]


_Items = Sequence[_Piece | _Group]


def compile_identifiers(pattern: str) -> re.Pattern[bytes]:
    """The pattern over bytes. Raises ``PatternError``."""
    if len(pattern) > LONGEST_PATTERN:
        raise PatternError(f"it is longer than {LONGEST_PATTERN} characters")
    text = pattern.removeprefix(r"\b")
    start = r"\b" if text != pattern else ""
    bare = text.removesuffix(r"\b")
    end = r"\b" if bare != text else ""
    items = _Reader(bare).read()
    if _least(items) == 0:
        raise PatternError("it matches the empty text")
    if _steps(items, frozenset(), 0)[1] > MOST_STEPS:
        raise PatternError(
            "it can match one text in too many ways: let no repeated part also match what "
            "follows it"
        )
    return re.compile((start + _written(items) + end).encode("ascii"))


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def read(self) -> tuple[_Piece | _Group, ...]:
        items = self.sequence()
        if self.at < len(self.text):
            raise PatternError(f"`{self.text[self.at :]}` has no place where it stands")
        return items

    def sequence(self) -> tuple[_Piece | _Group, ...]:
        items: list[_Piece | _Group] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            items.append(self.group() if self.text[self.at] == "(" else self.piece())
        return tuple(items)

    def group(self) -> _Group:
        rest = self.text[self.at + 1 :]
        self.at += 1
        if rest.startswith("?"):
            if not rest.startswith("?:"):
                raise PatternError(f"`({rest[:3]}` is no group of alternatives: use `(?:a|b)`")
            self.at += 2
        branches = [self.sequence()]
        while self.take("|"):
            branches.append(self.sequence())
        if not self.take(")"):
            raise PatternError("a group is not closed")
        if _QUANTIFIER.match(self.text, self.at):
            raise PatternError("a group is repeated: repeat a character or a class")
        return _Group(tuple(branches))

    def piece(self) -> _Piece:
        characters = self.characters_of_class() if self.take("[") else self.character("\\")
        found = _QUANTIFIER.match(self.text, self.at)
        if found is None:
            return _Piece(characters)
        self.at = found.end()
        if _QUANTIFIER.match(self.text, self.at):
            raise PatternError(f"`{found.group()}` is followed by another repeat")
        match found.group():
            case "?":
                return _Piece(characters, 0, 1)
            case "+":
                return _Piece(characters, 1, LONGEST_REPEAT)
            case "*":
                return _Piece(characters, 0, LONGEST_REPEAT)
        least = int(found.group(1))
        most = int(found.group(2) or least)
        if not least <= most <= LONGEST_REPEAT or most == 0:
            raise PatternError(f"`{found.group()}` is no repeat of 1 to {LONGEST_REPEAT}")
        return _Piece(characters, least, most)

    def character(self, escapes: str) -> frozenset[int]:
        """A character, or what an escape names. ``escapes`` are those that stand for others."""
        character = self.next()
        if character == "\\":
            escaped = self.next()
            if escaped in _NAMED:
                return _NAMED[escaped]
            if escaped.isalnum():
                raise PatternError(f"`\\{escaped}` is no character of an identifier")
            return _ascii(escaped)
        if escapes and character in _SPECIAL:
            raise PatternError(f"`{character}` has no place where it stands")
        return _ascii(character)

    def characters_of_class(self) -> frozenset[int]:
        if self.text.startswith("^", self.at):
            raise PatternError("`[^` is a class of everything else: name what an identifier holds")
        found: set[int] = set()
        while not self.take("]"):
            first = self.character("")
            # A dash before the end is a dash.
            if self.text.startswith("-", self.at) and not self.text.startswith("-]", self.at):
                self.at += 1
                last = self.character("")
                if len(first) != 1 or len(last) != 1 or min(first) > min(last):
                    raise PatternError("a class holds a range that is none")
                found.update(range(min(first), min(last) + 1))
            else:
                found |= first
        if not found:
            raise PatternError("a class is empty")
        return frozenset(found)

    def take(self, character: str) -> bool:
        if not self.text.startswith(character, self.at):
            return False
        self.at += 1
        return True

    def next(self) -> str:
        if self.at >= len(self.text):
            raise PatternError("it ends in the middle of a part")
        self.at += 1
        return self.text[self.at - 1]


def _ascii(character: str) -> frozenset[int]:
    if not character.isascii() or not character.isprintable() or character == " ":
        raise PatternError(f"{character!r} is no character of an identifier")
    return frozenset({ord(character)})


def _least(items: _Items) -> int:
    """The length of the shortest text that it matches."""
    return sum(
        item.least if isinstance(item, _Piece) else min(map(_least, item.branches))
        for item in items
    )


def _steps(items: _Items, follow: frozenset[int], steps: int) -> tuple[frozenset[int], int]:
    """What it may begin with, and at most how many characters a match looks at from one start.

    ``follow`` is what comes after the items, and ``steps`` what that costs each time.
    """
    for item in reversed(items):
        if isinstance(item, _Piece):
            # Each length that it could have, where what follows could begin at any of them.
            tries = item.most - item.least + 1 if item.characters & follow else 1
            steps = item.most + tries * steps
            follow = item.characters | (follow if item.least == 0 else frozenset())
        else:
            inner = [_steps(branch, follow, steps) for branch in item.branches]
            firsts = [first for first, _ in inner]
            overlap = any(one & other for one, other in combinations(firsts, 2))
            steps = (sum if overlap else max)(count for _, count in inner)
            follow = frozenset().union(*firsts)
    return follow, steps


def _written(items: _Items) -> str:
    written = ""
    for item in items:
        if isinstance(item, _Group):
            written += f"(?:{'|'.join(map(_written, item.branches))})"
            continue
        written += f"[{''.join(re.escape(chr(code)) for code in sorted(item.characters))}]"
        if (item.least, item.most) != (1, 1):
            written += f"{{{item.least},{item.most}}}"
    return written
