"""JavaScript's regular expressions (without flags, or with ``i``), as patterns of ``regex``.

Every construct is translated by what it means there: ``.`` and ``$`` and ``\\s`` differ between
the two, a back-reference to a group that took no part matches the empty text, and text is code
units. The text is a session's own, which can choose one that a pattern backtracks over for ever:
a match that could take long has a bound on its time. What the other engine cannot mean is refused,
with the offset in the pattern:

- a look-behind of no fixed width, or one with a capture in it;
- a capture that is used and lies inside something repeated, or is itself repeated and may be
  empty (JavaScript forgets it at each turn, Python does not);
- a back-reference to a group that is not closed before it;
- ``i`` together with a letter outside ASCII that has two cases;
- what only the ``u`` flag gives a meaning (``\\p{..}``, ``\\u{..}``), and legacy octal escapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod

import regex

from recorder.disciplines.values import WHITE_SPACE, code_units, from_code_units

_LINE_ENDS = "\\n\\r\\u2028\\u2029"
_SPACE = "".join(f"\\u{ord(c):04x}" for c in WHITE_SPACE)
_CONTROL = {"t": "\\t", "n": "\\n", "v": "\\x0b", "f": "\\x0c", "r": "\\r"}
_QUANTIFIER = re.compile(r"\{([0-9]+)(,([0-9]*))?\}")
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
# Python counts a repeat up to this; more is no pattern that a person wrote.
_LARGEST_REPEAT = 65_535
# Characters and sets that a pattern is compiled to: each repeat is written out, as often as it has
# to match at least. 300 bytes each, so 60 MB.
_LARGEST_SIZE = 200_000

# Of processor time, for one text. Linear patterns read more than 100 MB in it.
SECONDS = 1.0
# A match that cannot take more steps than this ends within 0.1 s and needs no clock, which costs
# 1 µs: three times what the match of a line costs.
_FREE_STEPS = 1_000_000


class PatternError(ValueError):
    """A pattern that is refused; ``offset`` counts its code units from 0."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"{reason} (at character {offset + 1} of the pattern)")
        self.offset = offset
        self.reason = reason


class PatternTimeError(Exception):
    """A pattern could not be held against a text within its time."""

    def __init__(self, source: str) -> None:
        super().__init__(f"takes longer than {SECONDS:g} s to be held against /{source}/")


@dataclass(frozen=True, eq=False, slots=True)
class Pattern:
    """A compiled pattern. ``source`` is as it was written. ``free``: the length of the longest
    text on which it needs no bound, -1 where there is none."""

    source: str
    ignore_case: bool
    compiled: regex.Pattern[str]
    free: int

    @property
    def groups(self) -> int:
        return self.compiled.groups

    def matches(self, text: str) -> bool:
        """Whether it matches anywhere in the text. Raises ``PatternTimeError``."""
        return self._search(text) is not None

    def first_group(self, text: str) -> str | None:
        """Group 1 of the first match; None where nothing matches or the group took no part.

        Raises ``PatternTimeError``.
        """
        found = self._search(text)
        if found is None:
            return None
        captured = found.group(1)
        return None if captured is None else from_code_units(captured)

    def _search(self, text: str) -> regex.Match[str] | None:
        units = text if text.isascii() else code_units(text)
        if len(units) <= self.free:
            return self.compiled.search(units)
        try:
            return self.compiled.search(units, timeout=SECONDS)
        except TimeoutError as error:
            raise PatternTimeError(self.source) from error


@lru_cache(maxsize=4096)
def compile_pattern(source: str, ignore_case: bool = False, captures: bool = False) -> Pattern:
    """Compile a pattern. ``captures``: group 1 is read, so it must exist and mean one thing.

    Raises ``PatternError``.
    """
    translation = _Translation(code_units(source), ignore_case)
    text = translation.translate()
    if captures:
        if not translation.groups:
            raise PatternError(0, "has no group, and its first group becomes the key")
        translation.require_plain(1, 0)
    try:
        flags = regex.VERSION0 | regex.ASCII | (regex.IGNORECASE if ignore_case else 0)
        compiled = regex.compile(text, flags)
    except (regex.error, OverflowError, RecursionError) as error:
        raise PatternError(0, f"cannot be meant here: {error}") from error
    return Pattern(source, ignore_case, compiled, translation.free)


@dataclass(slots=True)
class _Group:
    """A capture: whether it lies in something repeated, and is repeated itself while empty."""

    closed: bool = False
    repeated_around: bool = False
    repeated_empty: bool = False


@dataclass(slots=True)
class _Part:
    """A translated piece: its least and greatest width (None: no bound), its captures.

    ``ways`` are how many ways it has to match at one place, but for its ``loops``, each of which
    has one for each character; None where something that has a choice is repeated. ``size`` is what
    it is compiled to.
    """

    text: str
    least: int = 1
    greatest: int | None = 1
    captures: tuple[int, ...] = ()
    own: int | None = None
    ways: int | None = 1
    loops: int = 0
    size: int = 1


@dataclass(slots=True)
class _Translation:
    source: str
    ignore_case: bool
    at: int = 0
    groups: list[_Group] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    total: int = 0
    referenced: list[tuple[int, int]] = field(default_factory=list)
    depth: int = 0
    free: int = -1

    def translate(self) -> str:
        self.total = sum(1 for _ in _captures(self.source))
        part = self._disjunction()
        if part.size > _LARGEST_SIZE:
            raise PatternError(0, f"repeats to more than {_LARGEST_SIZE} characters")
        if self.at < len(self.source):
            raise PatternError(self.at, "has a `)` that closes nothing")
        for number, offset in self.referenced:
            self.require_plain(number, offset)
        if part.ways is not None and part.ways < _FREE_STEPS:
            self.free = int((_FREE_STEPS / part.ways) ** (1 / (part.loops + 1))) - 1
        return part.text

    def require_plain(self, number: int, offset: int) -> None:
        group = self.groups[number - 1]
        if group.repeated_around:
            raise PatternError(offset, f"group {number} is used and lies inside a repeat")
        if group.repeated_empty:
            raise PatternError(offset, f"group {number} is used, repeated, and may be empty")

    def _peek(self) -> str:
        return self.source[self.at] if self.at < len(self.source) else ""

    def _disjunction(self) -> _Part:
        self.depth += 1
        if self.depth > 60:
            raise PatternError(self.at, "is nested too deeply")
        branches = [self._alternative()]
        while self._peek() == "|":
            self.at += 1
            branches.append(self._alternative())
        self.depth -= 1
        greatest: int | None = 0
        for branch in branches:
            greatest = (
                None
                if greatest is None or branch.greatest is None
                else max(greatest, branch.greatest)
            )
        return _Part(
            "|".join(branch.text for branch in branches),
            min(branch.least for branch in branches),
            greatest,
            tuple(number for branch in branches for number in branch.captures),
            ways=None
            if any(each.ways is None for each in branches)
            else sum(each.ways or 0 for each in branches),
            loops=sum(branch.loops for branch in branches),
            size=sum(branch.size for branch in branches),
        )

    def _alternative(self) -> _Part:
        texts: list[str] = []
        least, greatest = 0, 0
        unbounded = False
        captures: list[int] = []
        ways: list[int | None] = []
        loops = size = 0
        while self.at < len(self.source) and self._peek() not in "|)":
            part = self._term()
            texts.append(part.text)
            least += part.least
            captures += part.captures
            ways.append(part.ways)
            loops += part.loops
            size += part.size
            if part.greatest is None:
                unbounded = True
            else:
                greatest += part.greatest
        return _Part(
            "".join(texts),
            least,
            None if unbounded else greatest,
            tuple(captures),
            ways=None if None in ways else prod(each or 1 for each in ways),
            loops=loops,
            size=size,
        )

    def _term(self) -> _Part:
        start = self.at
        character = self._peek()
        if character in "*+?" or (character == "{" and _QUANTIFIER.match(self.source, self.at)):
            raise PatternError(start, "repeats nothing")
        part, repeatable = self._atom()
        quantifier = self._quantifier()
        if quantifier is None:
            return part
        text, least, greatest = quantifier
        if not repeatable:
            raise PatternError(start, "repeats an assertion")
        self._mark_repeated(part, greatest)
        wide = None if greatest is None or part.greatest is None else part.greatest * greatest
        if part.greatest == 0:
            wide = 0
        ways, loops = _repeated(part, least, greatest)
        size = part.size * max(least, 1)
        if size > _LARGEST_SIZE:
            raise PatternError(start, f"repeats to more than {_LARGEST_SIZE} characters")
        return _Part(
            part.text + text,
            part.least * least,
            wide,
            part.captures,
            ways=ways,
            loops=loops,
            size=size,
        )

    def _mark_repeated(self, part: _Part, greatest: int | None) -> None:
        if greatest is not None and greatest <= 1:
            if part.least == 0:
                # JavaScript undoes an optional turn that took nothing, and its captures with it.
                for number in part.captures:
                    self.groups[number - 1].repeated_empty = True
            return
        for number in part.captures:
            if number != part.own:
                self.groups[number - 1].repeated_around = True
            elif part.least == 0:
                self.groups[number - 1].repeated_empty = True

    def _quantifier(self) -> tuple[str, int, int | None] | None:
        character = self._peek()
        least: int
        greatest: int | None
        if character and character in "*+?":
            self.at += 1
            text = character
            least, greatest = {"*": (0, None), "+": (1, None), "?": (0, 1)}[character]
        elif found := _QUANTIFIER.match(self.source, self.at):
            least = int(found[1])
            greatest = least if found[2] is None else int(found[3]) if found[3] else None
            if least > _LARGEST_REPEAT or (greatest or 0) > _LARGEST_REPEAT:
                raise PatternError(self.at, f"repeats more than {_LARGEST_REPEAT} times")
            if greatest is not None and greatest < least:
                raise PatternError(self.at, "has a repeat whose numbers are out of order")
            self.at = found.end()
            text = found[0]
        else:
            return None
        if self._peek() == "?":
            self.at += 1
            text += "?"
        if self._peek() and self._peek() in "*+?":
            raise PatternError(self.at, "repeats a repeat")
        return text, least, greatest

    def _atom(self) -> tuple[_Part, bool]:
        character = self._peek()
        match character:
            case "^":
                self.at += 1
                return _Part("\\A", 0, 0), False
            case "$":
                self.at += 1
                return _Part("\\Z", 0, 0), False
            case ".":
                self.at += 1
                return _Part(f"[^{_LINE_ENDS}]"), True
            case "(":
                return self._group()
            case "[":
                return _Part(self._class()), True
            case "\\":
                return self._escape()
            case _:
                self.at += 1
                return _Part(self._literal(character, self.at - 1)), True

    def _literal(self, character: str, offset: int) -> str:
        self._require_one_case(character, character, offset)
        return re.escape(character) if character.isascii() else f"\\u{ord(character):04x}"

    def _require_one_case(self, first: str, last: str, offset: int) -> None:
        if not self.ignore_case or last.isascii():
            return
        for number in range(max(ord(first), 0x80), ord(last) + 1):
            if chr(number).lower() != chr(number) or chr(number).upper() != chr(number):
                raise PatternError(offset, "ignores case and names a letter outside ASCII")

    def _group(self) -> tuple[_Part, bool]:
        start = self.at
        rest = self.source[start:]
        for opening, text in (("(?:", "(?:"), ("(?=", "(?="), ("(?!", "(?!")):
            if rest.startswith(opening):
                self.at += len(opening)
                inner = self._closed(start)
                if opening == "(?:":
                    return replace(inner, text=f"{text}{inner.text})", own=None), True
                if opening == "(?!":
                    self._forget(inner)
                return replace(
                    inner, text=f"{text}{inner.text})", least=0, greatest=0, own=None
                ), False
        for opening in ("(?<=", "(?<!"):
            if rest.startswith(opening):
                self.at += len(opening)
                inner = self._closed(start)
                if inner.captures:
                    raise PatternError(start, "has a capture in a look-behind")
                if inner.greatest is None or inner.least != inner.greatest:
                    raise PatternError(start, "has a look-behind of no fixed width")
                return replace(inner, text=f"{opening}{inner.text})", least=0, greatest=0), False
        self.at += 1
        if rest.startswith("(?<"):
            name = _NAME.match(self.source, start + 3)
            if name is None or not self.source.startswith(">", name.end()):
                raise PatternError(start, "has a group whose name is not one")
            if name[0] in self.names:
                raise PatternError(start, f"has two groups named {name[0]}")
            self.names[name[0]] = len(self.groups) + 1
            self.at = name.end() + 1
        elif rest.startswith("(?"):
            raise PatternError(start, "has a group that JavaScript does not know")
        self.groups.append(_Group())
        number = len(self.groups)
        inner = self._closed(start)
        self.groups[number - 1].closed = True
        return replace(
            inner, text=f"({inner.text})", captures=(number, *inner.captures), own=number
        ), True

    def _forget(self, part: _Part) -> None:
        for number in part.captures:
            self.groups[number - 1].repeated_around = True

    def _closed(self, start: int) -> _Part:
        part = self._disjunction()
        if self._peek() != ")":
            raise PatternError(start, "has a group that is not closed")
        self.at += 1
        return part

    def _escape(self) -> tuple[_Part, bool]:
        start = self.at
        character = self.source[start + 1 : start + 2]
        match character:
            case "":
                raise PatternError(start, "ends in a backslash")
            case "b":
                self.at += 2
                return _Part("\\b", 0, 0), False
            case "B":
                # Python's \B does not match in the empty text.
                self.at += 2
                return _Part("(?!\\b)", 0, 0), False
            case "k" if self.names or "(?<" in self.source:
                name = _NAME.match(self.source, start + 3)
                if not self.source.startswith("<", start + 2) or name is None:
                    raise PatternError(start, "has a \\k that names no group")
                self.at = name.end() + 1
                if name[0] not in self.names:
                    raise PatternError(start, "refers to a group that is not closed before it")
                return self._reference(self.names[name[0]], start), True
            case _ if character in "123456789":
                digits = re.match("[0-9]+", self.source[start + 1 :])
                number = int(digits[0]) if digits else 0
                if number > self.total:
                    raise PatternError(start, "has an octal escape; write it as \\xHH")
                self.at += 1 + len(str(number))
                return self._reference(number, start), True
            case _:
                return _Part(self._character(in_class=False)[0]), True

    def _reference(self, number: int, offset: int) -> _Part:
        if number > len(self.groups) or not self.groups[number - 1].closed:
            raise PatternError(offset, "refers to a group that is not closed before it")
        self.referenced.append((number, offset))
        # To compare what was captured takes as long as that is.
        return _Part(f"(?:(?({number})\\{number}|))", 0, None, loops=1)

    def _character(self, *, in_class: bool) -> tuple[str, str | None]:
        """An escape of one character or of a set: its text, and the character if it is one."""
        start = self.at
        character = self.source[start + 1 : start + 2]
        self.at += 2
        if character in "dDwW":
            return f"\\{character}", None
        if character == "s":
            return (_SPACE if in_class else f"[{_SPACE}]"), None
        if character == "S":
            return (_not_space() if in_class else f"[^{_SPACE}]"), None
        if character in _CONTROL:
            text = _CONTROL[character]
            return text, {"t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r"}[character]
        if character == "b" and in_class:
            return "\\x08", "\b"
        if character == "c":
            letter = self.source[self.at : self.at + 1]
            if not re.fullmatch("[A-Za-z]", letter):
                raise PatternError(start, "has a \\c without a letter")
            self.at += 1
            return f"\\x{ord(letter) % 32:02x}", chr(ord(letter) % 32)
        if character == "0":
            if self._peek() and self._peek() in "0123456789":
                raise PatternError(start, "has an octal escape; write it as \\xHH")
            return "\\x00", "\0"
        if character in "123456789":
            raise PatternError(start, "has an octal escape; write it as \\xHH")
        if character in "xu":
            size = 2 if character == "x" else 4
            digits = self.source[self.at : self.at + size]
            if re.fullmatch(f"[0-9a-fA-F]{{{size}}}", digits):
                self.at += size
                one = chr(int(digits, 16))
                self._require_one_case(one, one, start)
                return f"\\u{ord(one):04x}", one
            if character == "u" and self._peek() == "{":
                raise PatternError(start, "has \\u{..}, which needs the u flag")
        if character in "pP" and self._peek() == "{":
            raise PatternError(start, f"has \\{character}{{..}}, which needs the u flag")
        return self._literal(character, start), character

    def _class(self) -> str:
        start = self.at
        self.at += 1
        negated = self._peek() == "^"
        if negated:
            self.at += 1
        pieces: list[str] = []
        while self._peek() != "]":
            if not self._peek():
                raise PatternError(start, "has a class that is not closed")
            text, first = self._class_atom()
            if self._peek() == "-" and self.source[self.at + 1 : self.at + 2] not in ("]", ""):
                dash = self.at
                self.at += 1
                end, last = self._class_atom()
                if first is None or last is None:
                    pieces += [text, "\\-", end]
                    continue
                if last < first:
                    raise PatternError(dash, "has a range whose ends are out of order")
                self._require_one_case(first, last, dash)
                pieces.append(f"{text}-{end}")
                continue
            pieces.append(text)
        self.at += 1
        if not pieces:
            return "[\\s\\S]" if negated else "(?!)"
        return f"[{'^' if negated else ''}{''.join(pieces)}]"

    def _class_atom(self) -> tuple[str, str | None]:
        character = self._peek()
        if character == "\\":
            if self.at + 1 >= len(self.source):
                raise PatternError(self.at, "ends in a backslash")
            return self._character(in_class=True)
        self.at += 1
        return self._class_literal(character), character

    def _class_literal(self, character: str) -> str:
        self._require_one_case(character, character, self.at - 1)
        if character.isascii() and not character.isalnum():
            return f"\\x{ord(character):02x}"
        return character if character.isascii() else f"\\u{ord(character):04x}"


def _repeated(part: _Part, least: int, greatest: int | None) -> tuple[int | None, int]:
    """The ways and loops of a part that is repeated so often."""
    if part.ways is None:
        return None, part.loops
    if greatest is not None and greatest <= 1:
        return part.ways + 1 - least, part.loops
    if part.ways > 1 or part.loops:
        return None, part.loops
    return (1, 1) if greatest is None else (greatest - least + 1, 0)


def _captures(source: str) -> Iterator[int]:
    """The offset of each capturing group's opening."""
    in_class = False
    at = 0
    while at < len(source):
        match source[at]:
            case "\\":
                at += 1
            case "[":
                in_class = True
            case "]":
                in_class = False
            case "(" if not in_class and (
                source[at + 1 : at + 2] != "?"
                or (source.startswith("(?<", at) and source[at + 3 : at + 4] not in ("=", "!"))
            ):
                yield at
        at += 1


@lru_cache(maxsize=1)
def _not_space() -> str:
    """Every code unit but white space, as ranges for the inside of a class."""
    pieces, begin = [], 0
    for space in sorted(map(ord, WHITE_SPACE)):
        if space > begin:
            pieces.append(f"\\u{begin:04x}-\\u{space - 1:04x}")
        begin = space + 1
    pieces.append(f"\\u{begin:04x}-\\uffff")
    return "".join(pieces)
