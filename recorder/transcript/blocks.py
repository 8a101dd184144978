"""The fenced blocks of a Markdown file, with the heading each stands under and its line."""

from __future__ import annotations

import re
from dataclasses import dataclass

_HEADING = re.compile(r" {0,3}(#{1,2})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*")
_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})[ \t]*([^`\s]*)[^`]*")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: ``line`` is its first line of content, from 1; ``closed`` by a fence."""

    heading: str
    language: str
    line: int
    text: str
    closed: bool


@dataclass(frozen=True, slots=True)
class Markdown:
    """Headings of level 1 and 2 with their lines, and every fenced block."""

    headings: tuple[tuple[str, int], ...]
    blocks: tuple[Block, ...]


def read_markdown(text: str) -> Markdown:
    """Read headings and fences; front matter between ``---`` lines at the start is passed over."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    headings: list[tuple[str, int]] = []
    blocks: list[Block] = []
    heading = ""
    position = _after_front_matter(lines)
    while position < len(lines):
        line = lines[position]
        position += 1
        fence = _FENCE.fullmatch(line)
        if fence:
            start = position
            while position < len(lines) and not _closes(lines[position], fence[2]):
                position += 1
            closed = position < len(lines)
            content = "".join(f"{inner}\n" for inner in lines[start:position])
            blocks.append(Block(heading, fence[3].lower(), start + 1, content, closed))
            position += 1
        elif found := _HEADING.fullmatch(line):
            heading = (found[2] or "") if len(found[1]) == 2 else ""
            if heading:
                headings.append((heading, position))
    return Markdown(tuple(headings), tuple(blocks))


def _after_front_matter(lines: list[str]) -> int:
    if lines[0] != "---":
        return 0
    for position, line in enumerate(lines[1:], 2):
        if line in ("---", "..."):
            return position
    return 0


def _closes(line: str, fence: str) -> bool:
    stripped = line.strip(" \t")
    indent = len(line) - len(line.lstrip(" "))
    return (
        indent <= 3
        and len(stripped) >= len(fence)
        and bool(stripped)
        and set(stripped) == {fence[0]}
    )
