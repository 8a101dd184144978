"""Numbers on the command line, as they are written: ``010`` is a slip and not ten."""

from __future__ import annotations

import re

import typer

_POSITIVE = re.compile(r"[1-9][0-9]{0,8}")


def positive(written: str) -> int:
    """A whole number of at least 1 without a sign or a leading zero."""
    if not _POSITIVE.fullmatch(written):
        raise typer.BadParameter(f"{written!r} is not a whole number of at least 1")
    return int(written)
