"""The one encoder: every string of a transcript is written by it, on one line.

The text is JSON and YAML alike, and every reader of either gives the same string back. Where the
two differ it takes what both read: characters beyond the basic plane stay themselves, because
YAML has no surrogate pairs; what YAML does not print, or a terminal would act on, is escaped.
Half a surrogate pair becomes its escape, which readers built on libyaml refuse; the stream's
reader lets none in.
"""

from __future__ import annotations

import json
import re

_ESCAPED = re.compile(
    "[\x7f-\xa0\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff0-\uffff]"
)


def encode(text: str) -> str:
    """The string in double quotes, with JSON's escapes."""
    return _ESCAPED.sub(_escape, json.dumps(text, ensure_ascii=False))


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
