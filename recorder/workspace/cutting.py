"""Taking the lines, or the elements of a JSON array, that name a subject out of a file; pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from recorder.workspace.naming import Names, Subject

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Cut:
    """A content without what named a subject. ``content`` is None where nothing can be left.

    ``pieces`` counts, by the title of a subject, the lines or elements that went.
    """

    content: bytes | None
    pieces: dict[str, int]


def cut(path: bytes, content: bytes, names: Names) -> Cut:
    """Take out what names a subject: elements of JSON that parses, lines of anything else.

    A file that still names one afterwards, such as one whose name holds a line feed, goes
    whole.
    """
    pieces: dict[str, int] = {}
    left: bytes | None = None
    if path.lower().endswith(b".json"):
        left = _cut_json(content, names, pieces)
    if left is None:
        pieces.clear()
        left = _cut_lines(content, names, pieces)
    return Cut(None if names.found(left) else left, pieces)


def _cut_lines(content: bytes, names: Names, pieces: dict[str, int]) -> bytes:
    kept: list[bytes] = []
    for line in content.splitlines(keepends=True):
        subjects = names.found(line)
        if not subjects:
            kept.append(line)
        _count(pieces, subjects)
    return b"".join(kept)


def _count(pieces: dict[str, int], subjects: tuple[Subject, ...]) -> None:
    for subject in subjects[:1]:
        pieces[subject.title] = pieces.get(subject.title, 0) + 1


def _cut_json(content: bytes, names: Names, pieces: dict[str, int]) -> bytes | None:
    """The text without the innermost array elements that name a subject, or without the
    members where no array holds them; None where the text is no JSON or nothing is left."""
    try:
        text = content.decode("utf-8")
        _DECODER.decode(text)
        spans: list[Span] = []
        whole = _value(text, _skip(text, 0), names, pieces, spans, in_array=False)
    except (ValueError, RecursionError):
        return None
    if whole:
        return None
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + text[end:]
    try:
        _DECODER.decode(text)
    except ValueError:
        return None
    return text.encode("utf-8")


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


@dataclass(frozen=True, slots=True)
class _Item:
    """One element, or one member with its key: from its first to behind its last character."""

    start: int
    value: int
    end: int


def _items(text: str, at: int) -> list[_Item]:
    """The items of the array or object that starts at ``at``."""
    close = "]" if text[at] == "[" else "}"
    items: list[_Item] = []
    at = _skip(text, at + 1)
    while text[at] != close:
        start = at
        if close == "}":
            _, at = _DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        _, end = _DECODER.raw_decode(text, at)
        items.append(_Item(start, at, end))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return items


def _value(
    text: str,
    at: int,
    names: Names,
    pieces: dict[str, int],
    spans: list[Span],
    *,
    in_array: bool,
) -> bool:
    """Collect the spans to cut of one value. True where the value itself has to go.

    The innermost array element that names a subject goes, and where no array is around it
    (``in_array``) the member of the object.
    """
    if text[at] not in "[{":
        return True
    is_array = text[at] == "["
    items = _items(text, at)
    gone: list[int] = []
    for number, item in enumerate(items):
        subjects = names.found(text[item.start : item.end].encode("utf-8"))
        if not subjects:
            continue
        inner: list[Span] = []
        counted: dict[str, int] = {}
        key_names = names.found(text[item.start : item.value].encode("utf-8"))
        if key_names or _value(
            text, item.value, names, counted, inner, in_array=in_array or is_array
        ):
            gone.append(number)
            _count(pieces, subjects)
        else:
            spans.extend(inner)
            for title, count in counted.items():
                pieces[title] = pieces.get(title, 0) + count
    if gone and in_array and not is_array:
        return True
    spans.extend(_runs(items, gone))
    return False


def _runs(items: list[_Item], gone: list[int]) -> list[Span]:
    """The spans of the items that go, each with one comma beside it."""
    spans: list[Span] = []
    lost = set(gone)
    number = 0
    while number < len(items):
        if number not in lost:
            number += 1
            continue
        last = number
        while last + 1 in lost:
            last += 1
        if last + 1 < len(items):
            spans.append((items[number].start, items[last + 1].start))
        elif number > 0:
            spans.append((items[number - 1].end, items[last].end))
        else:
            spans.append((items[number].start, items[last].end))
        number = last + 1
    return spans
