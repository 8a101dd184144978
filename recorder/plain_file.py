"""Files that somebody else may have written: read without a wait, a link or a depth that ends us.

A batch's directory is handed on. What lies in it can be a FIFO, a link, larger than memory, or JSON
that is nested deeper than Python's stack; each is an error that its reader names.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path
from typing import TypeVar

import msgspec

# Twice as large as the largest that a recorder keeps whole; a stream of 1 GiB is no session's.
LARGEST = 1 << 30

Document = TypeVar("Document")


def open_plain(path: Path, largest: int = LARGEST) -> io.FileIO:
    """A plain file to be read. Raises ``OSError`` with the file's name for a link, for what is no
    plain file and for one of more than ``largest`` bytes."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise OSError(error.errno, "is no plain file", str(path)) from error
        raise
    found = os.fstat(descriptor)
    for wrong, number, why in (
        (not stat.S_ISREG(found.st_mode), errno.EINVAL, "is no plain file"),
        (found.st_size > largest, errno.EFBIG, f"is larger than {largest} bytes"),
    ):
        if wrong:
            os.close(descriptor)
            raise OSError(number, why, str(path))
    return io.FileIO(descriptor)


def read_plain(path: Path, largest: int = LARGEST) -> bytes:
    """The bytes of a plain file; raises as ``open_plain`` does."""
    with open_plain(path, largest) as file:
        return file.readall()


def decode(data: bytes, kind: type[Document]) -> Document:
    """JSON as a ``kind``. Raises ``msgspec.MsgspecError``, also where it is nested too deep."""
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError as error:
        raise msgspec.DecodeError("it is nested too deep") from error
