"""Files that are on disk before anything depends on them, whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

_PART = re.compile(r"\..+\.[0-9a-f]{16}\.part")


def write_durable(path: Path, data: bytes) -> None:
    """Write a file of mode 0600 whole or not at all: a part beside it, fsync, rename."""
    # A name that nobody can have laid a link or a file of theirs at beforehand.
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")  # as _PART reads it
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(part, flags, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def remove_parts(directory: Path) -> None:
    """Remove what ``write_durable`` had begun in a directory when its process was killed.

    For whoever alone writes there. A link is none of them, and a directory that is one is left.
    """
    if directory.is_symlink() or not directory.is_dir():
        return
    for entry in os.scandir(directory):
        if _PART.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
            (directory / entry.name).unlink()


def sync_directory(directory: Path) -> None:
    """Put a directory's own entries on disk: what was made, renamed or removed in it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
