"""A produced file as the lines that a person reads: what it was and what it is. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import unified_diff

from recorder.batch.before import TEXT_BYTES
from recorder.report.visible import visible

LINE_WIDTH = 500


@dataclass(frozen=True)
class Difference:
    """``lines`` is None where nothing can be shown, and ``why`` says so. ``cut``: lines left.

    ``added`` and ``removed`` count lines, all of them; None where they cannot be told.
    """

    lines: tuple[str, ...] | None
    cut: int
    why: str
    added: int | None = None
    removed: int | None = None


def difference(before: bytes | None, after: bytes, limit: int, *, is_new: bool) -> Difference:
    """Compare two states of a file. ``before`` is None where its text is not kept."""
    texts = [_text(state) for state in (before or b"", after)]
    if any(text is None for text in texts):
        return Difference(None, 0, f"{len(after)} bytes that are no text of at most {TEXT_BYTES}")
    old, new = (text.splitlines() for text in texts if text is not None)
    if before is None:
        # The whole text: as added where the file is new, else as it stands.
        lines = [f"{'+' if is_new else ' '}{line}" for line in new]
        if is_new:
            return _limited(lines, limit, "", len(new), 0)
        why = "the text before the session is not kept, so this is what it left"
        return _limited(lines, limit, why, None, None)
    lines = list(unified_diff(old, new, lineterm="", n=3))[2:]
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return _limited(lines, limit, "", added, removed)


def _limited(
    lines: Sequence[str], limit: int, why: str, added: int | None, removed: int | None
) -> Difference:
    shown = tuple(visible(line[:LINE_WIDTH]).replace("\n", "\\n") for line in lines[:limit])
    return Difference(shown, len(lines) - len(shown), why, added, removed)


def _text(state: bytes) -> str | None:
    if len(state) > TEXT_BYTES or b"\0" in state:
        return None
    try:
        return state.decode("utf-8")
    except UnicodeDecodeError:
        return None
