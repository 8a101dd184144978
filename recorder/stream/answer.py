"""The answer is the final line, compared as a set of words with each declared answer.

The line is found and compared, never searched: a search inside a sentence would read the
session rather than observe it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_BLANKS = re.compile(r"[ \t]+")
_FOLD = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


def derive_answer(final_text: str | None, answers: Sequence[str]) -> str | None:
    """The declared form of the answer that the final line holds, or None.

    The last line that is not blank, one trailing period stripped, case folded (ASCII), split
    at runs of spaces and tabs: its words, with how often each occurs, are those of one answer.
    """
    if final_text is None:
        return None
    for line in reversed(final_text.split("\n")):
        if line.strip(" \t"):
            words = _words(line.strip(" \t").removesuffix("."))
            break
    else:
        return None
    for answer in answers:
        if words and _words(answer) == words:
            return answer
    return None


def split_answers(text: str) -> tuple[str, ...]:
    """The answers of one line, ``a, b``: parted by commas, the space around each trimmed."""
    return tuple(trimmed for part in text.split(",") if (trimmed := part.strip(" \t")))


def _words(text: str) -> list[str]:
    return sorted(word for word in _BLANKS.split(text.translate(_FOLD)) if word)
