"""Lines of a stream: split on ``\\n`` only, each checked to be UTF-8, in flat memory.

A line of many MB is gathered once and never copied: peak memory is the longest line plus one
chunk. Only ``\\n`` ends a line: U+2028 and the other characters that ``str.splitlines`` knows are
data here.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator

# The UTF-8 check of a long line decodes this many bytes at a time and keeps none of them.
UTF8_WINDOW = 1 << 18

_ESCAPE = re.compile(
    rb"\\(?:u[dD][89aAbB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u([0-9a-fA-F]{4})|.)",
    re.DOTALL,
)


def split_lines(chunks: Iterable[bytes]) -> Iterator[tuple[bytes | bytearray, bool]]:
    """Yield ``(line, ended)``: the bytes without their ``\\n``, and whether one followed.

    Only the last line can be without one, and an empty rest is not a line. A yielded line is the
    reader's: nothing here changes it later.
    """
    gathered = bytearray()
    for chunk in chunks:
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            if gathered:
                gathered += memoryview(chunk)[start:end]
                yield gathered, True
                gathered = bytearray()
            else:
                yield chunk[start:end], True
            start = end + 1
        if start == 0:
            gathered += chunk
        elif start < len(chunk):
            gathered += memoryview(chunk)[start:]
    if gathered:
        yield gathered, False


def first_byte_not_utf8(line: bytes | bytearray) -> int | None:
    """The offset of the first byte that is not UTF-8, or None."""
    if line.isascii():
        return None
    view = memoryview(line)
    start = 0
    while start < len(line):
        window = view[start : start + UTF8_WINDOW]
        final = start + len(window) == len(line)
        try:
            _, consumed = codecs.utf_8_decode(window, "strict", final)
        except UnicodeDecodeError as error:
            return start + error.start
        start += consumed
    return None


def replace_lone_surrogates(line: bytes | bytearray) -> bytearray | None:
    """The line with each escape of half a pair made ``\\ufffd``, or None where there is none.

    JavaScript prints half a pair where a text was cut inside a character. No UTF-8 text and no
    YAML reader built on libyaml can hold it, so it becomes the replacement character.
    """
    repaired: bytearray | None = None
    for match in _ESCAPE.finditer(line):
        digits = match.group(1)
        if digits is not None and 0xD800 <= int(digits, 16) <= 0xDFFF:
            if repaired is None:
                repaired = bytearray(line)
            repaired[match.start(1) : match.end(1)] = b"fffd"
    return repaired
