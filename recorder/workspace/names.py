"""File names as bytes, and the two text forms they take.

A name is what the kernel holds: bytes without NUL and without a slash inside a part. It need
not be UTF-8 and it may hold a newline, so no line-based file carries one unescaped.
"""

from __future__ import annotations

import re

_ESCAPE = re.compile(rb"[^\x21-\x5b\x5d-\x7e]")
_UNESCAPE = re.compile(rb"\\x([0-9a-f]{2})")


def escape_name(name: bytes) -> str:
    """Printable ASCII as it is; space, backslash and every other byte as ``\\xNN``.

    One to one: ``unescape_name(escape_name(name)) == name`` for every name.
    """
    return _ESCAPE.sub(lambda found: b"\\x%02x" % found.group()[0], name).decode("ascii")


def unescape_name(text: str) -> bytes:
    """The name that ``escape_name`` wrote. Raises ``ValueError`` for any other text."""
    if not text.isascii():
        raise ValueError("an escaped name is ASCII")
    name = _UNESCAPE.sub(lambda found: bytes([int(found.group(1), 16)]), text.encode("ascii"))
    if escape_name(name) != text:
        raise ValueError(f"not an escaped name: {text!r}")
    return name


def path_text(name: bytes) -> str:
    """The name as a transcript writes it: UTF-8 as it is, any other name escaped."""
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        return escape_name(name)


def inside(name: bytes, folder: bytes) -> bool:
    """Whether ``name`` is ``folder`` or lies under it, part by part (``ab`` is not in ``a``)."""
    return name == folder or name.startswith(folder + b"/")
