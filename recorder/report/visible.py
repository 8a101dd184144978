"""Text of a session or a corpus in a form that cannot change how the text around it looks. Pure.

Escaping keeps it from being markup. This keeps it from reordering a line, hiding a part of itself
or moving a terminal's cursor.
"""

from __future__ import annotations

import re
import unicodedata

# Control characters but newline and tab; then format characters (bidirectional marks, zero width
# joiners, soft hyphens), line separators, private use, and halves of surrogate pairs.
_CANDIDATE = re.compile("[^\\t\\n\\x20-\\x7e]")
_HIDDEN = frozenset({"Cc", "Cf", "Zl", "Zp", "Co", "Cs", "Cn"})


def visible(text: str) -> str:
    """The text with every character that shows nothing written as its escape."""
    if text.isascii() and text.isprintable():
        return text
    return _CANDIDATE.sub(_shown, text)


def one_line(text: str) -> str:
    """``visible``, and newlines and tabs as escapes too."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def _shown(found: re.Match[str]) -> str:
    character = found.group()
    if unicodedata.category(character) not in _HIDDEN:
        return character
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
