"""Which names give a probe away, and where a content or a path holds one; pure.

A probe is given away by its identifier and by the name of its file. So is a document that
names a probe, and a declared answer key, by theirs. A content is read once for all of them:
its words are taken as a set, so the price of a file does not grow with the number of names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_WORD = re.compile(rb"[A-Za-z0-9_-]+")
_EDGE_BEFORE = rb"(?<![A-Za-z0-9_-])"
_EDGE_AFTER = rb"(?![A-Za-z0-9_-])"
_ONE_WORD = re.compile(rb"[A-Za-z0-9]*")
_ESCAPE = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([nrtbf\"'/\\]))")
_ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f"}


@dataclass(frozen=True, slots=True)
class Subject:
    """A probe, or a document that goes with one.

    ``identifier`` is None for a document without one. ``slug`` is the name of its file without
    ``.md``. ``shared`` says that another file of the corpus has the same name.
    """

    path: bytes
    identifier: bytes | None
    slug: bytes
    shared: bool
    is_probe: bool
    title: str

    @property
    def generic(self) -> bool:
        """Whether the slug names more than this file: one word, or the name of two files."""
        return self.shared or _ONE_WORD.fullmatch(self.slug) is not None


@dataclass(frozen=True, slots=True)
class _Needle:
    text: bytes
    edge_after: bool
    subject: Subject

    def pattern(self) -> re.Pattern[bytes]:
        after = _EDGE_AFTER if self.edge_after else b""
        return re.compile(_EDGE_BEFORE + re.escape(self.text) + after)


def _needles(subject: Subject) -> Iterable[_Needle]:
    if subject.identifier:
        yield _Needle(subject.identifier, True, subject)
    file = subject.slug + b".md"
    if subject.is_probe:
        # A probe is named by the words of its file too, and by its folder where another file
        # has the same name.
        if not subject.generic:
            yield _Needle(subject.slug, True, subject)
        folder = subject.path.split(b"/")[-2:-1] if subject.shared else []
        yield _Needle(b"/".join([*folder, file]), False, subject)
    elif not subject.generic:
        yield _Needle(file, False, subject)


class Names:
    """A set of subjects, made ready to be looked for."""

    def __init__(self, subjects: Iterable[Subject]) -> None:
        self.subjects = tuple(subjects)
        self._by_word: dict[bytes, list[tuple[re.Pattern[bytes], Subject]]] = {}
        self._odd: list[tuple[bytes, re.Pattern[bytes], Subject]] = []
        for subject in self.subjects:
            for needle in _needles(subject):
                self._put(needle)
        shortest = min(map(len, self._by_word), default=1)
        self._words = re.compile(rb"[A-Za-z0-9_-]{%d,}" % shortest)

    def _put(self, needle: _Needle) -> None:
        """File a needle under a word that any content with the needle holds whole."""
        words = _WORD.findall(needle.text)
        ends_in_word = _WORD.fullmatch(needle.text[-1:]) is not None
        if ends_in_word and not needle.edge_after:
            words = words[:-1]
        if not words:
            self._odd.append((needle.text, needle.pattern(), needle.subject))
            return
        longest = max(words, key=len)
        self._by_word.setdefault(longest, []).append((needle.pattern(), needle.subject))

    def found(self, content: bytes) -> tuple[Subject, ...]:
        """The subjects that a content names, in the order in which they were given.

        A name that is written with the escapes of JSON, YAML or a source file counts, and so does
        one behind an escape: in ``"\\nPROBE-A"`` no letter stands before the name.
        """
        hits = self._hits(content)
        if b"\\" in content and (plain := unescaped(content)) != content:
            hits |= self._hits(plain)
        return tuple(subject for subject in self.subjects if id(subject) in hits)

    def _hits(self, content: bytes) -> set[int]:
        hits: set[int] = set()
        if self._by_word:
            for word in self._by_word.keys() & set(self._words.findall(content)):
                for pattern, subject in self._by_word[word]:
                    if id(subject) not in hits and pattern.search(content):
                        hits.add(id(subject))
        for text, pattern, subject in self._odd:
            if text in content and pattern.search(content):
                hits.add(id(subject))
        return hits


def unescaped(content: bytes) -> bytes:
    """A content with its escape sequences replaced by what they stand for, in UTF-8."""
    return _ESCAPE.sub(_plain, content)


def _plain(found: re.Match[bytes]) -> bytes:
    wide, narrow, letter = found.groups()
    if letter is not None:
        return _ESCAPED.get(letter, letter)
    return chr(int(wide or narrow, 16)).encode("utf-8", "replace")


def slug_of(path: bytes) -> bytes:
    """The name of a file without ``.md``."""
    return path.rpartition(b"/")[2].removesuffix(b".md")


def shared_names(paths: Iterable[bytes]) -> frozenset[bytes]:
    """The file names that more than one path has."""
    count: dict[bytes, int] = {}
    for path in paths:
        name = path.rpartition(b"/")[2]
        count[name] = count.get(name, 0) + 1
    return frozenset(name for name, number in count.items() if number > 1)
