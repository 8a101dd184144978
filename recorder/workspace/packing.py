"""A directory as a tar stream, to be put into a container that has no mount of the host."""

# Names are bytes here, and pathlib holds none.
# ruff: noqa: PTH115, PTH118

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from recorder.refusal import ExitCode, Refusal
from recorder.workspace.manifest import Found, read_blocks, walk
from recorder.workspace.names import path_text

# One time for every file: the times of a checkout say when its host worked, and Glob of the
# harness sorts by them. Not 0, which some tools read as "no time".
MODIFIED = 1_577_836_800

_RECORD = tarfile.RECORDSIZE


@dataclass(frozen=True)
class Placed:
    """A file put over a tree: its relative path, its permission bits, where its bytes lie."""

    path: bytes
    mode: int
    source: Path


def pack(
    directory: Path,
    uid: int,
    gid: int,
    *,
    prefix: str = "",
    without: Collection[bytes] = frozenset(),
    over: Iterable[Placed] = (),
) -> Iterator[bytes]:
    """The tree as tar chunks of at most one block of 1 MiB, in flat memory.

    Every entry is owned by ``uid`` and ``gid`` (numbers, no names), has the time ``MODIFIED``
    and no set-id or sticky bit. With a ``prefix`` (``workspace``) its folder comes first and
    every name lies under it. Links go in as links. Paths in ``without`` are left out, and the
    files ``over`` the tree come last. Refuses (2) anything that is neither a file, a directory
    nor a link, and a file that changes its size while it is read.
    """
    written = 0
    lead = prefix.strip("/")
    if lead:
        header = _header(lead, tarfile.DIRTYPE, 0o755, uid, gid)
        written += len(header)
        yield header
    for found in walk(directory):
        if found.path in without:
            continue
        for chunk in _member(directory, found, lead, uid, gid):
            written += len(chunk)
            yield chunk
    for placed in over:
        for chunk in _placed(placed, lead, uid, gid):
            written += len(chunk)
            yield chunk
    end = 2 * tarfile.BLOCKSIZE
    yield bytes(end + -(written + end) % _RECORD)


def _placed(placed: Placed, lead: str, uid: int, gid: int) -> Iterator[bytes]:
    source = os.fsencode(placed.source)
    size = os.lstat(source).st_size
    name = _under(lead, placed.path)
    yield _header(name, tarfile.REGTYPE, placed.mode & 0o777, uid, gid, size=size)
    yield from _content(source, size)


def _under(lead: str, path: bytes) -> str:
    return f"{lead}/{os.fsdecode(path)}" if lead else os.fsdecode(path)


def _content(full: bytes, size: int) -> Iterator[bytes]:
    """A file's bytes and their padding. Refuses (2) one that is not as long as its header says."""
    sent = 0
    for block in read_blocks(full):
        sent += len(block)
        if sent > size:
            break
        yield block
    if sent != size:
        raise Refusal(
            ExitCode.USAGE,
            f"{path_text(full)}: changed while it was read; "
            "leave the tree alone while a batch starts",
        )
    if padding := -size % tarfile.BLOCKSIZE:
        yield bytes(padding)


def _member(root: Path, found: Found, lead: str, uid: int, gid: int) -> Iterator[bytes]:
    name = _under(lead, found.path)
    full = os.path.join(os.fsencode(root), found.path)
    mode = found.status.st_mode
    permissions = mode & 0o777
    if stat.S_ISDIR(mode):
        yield _header(name, tarfile.DIRTYPE, permissions, uid, gid)
    elif stat.S_ISLNK(mode):
        yield _header(name, tarfile.SYMTYPE, 0o777, uid, gid, link=os.fsdecode(os.readlink(full)))
    elif stat.S_ISREG(mode):
        size = found.status.st_size
        yield _header(name, tarfile.REGTYPE, permissions, uid, gid, size=size)
        yield from _content(full, size)
    else:
        raise Refusal(
            ExitCode.USAGE,
            f"{path_text(full)}: neither a file, a directory nor a link; "
            "remove it, a workspace holds no device, socket or FIFO",
        )


def _header(
    name: str, kind: bytes, mode: int, uid: int, gid: int, *, size: int = 0, link: str = ""
) -> bytes:
    member = tarfile.TarInfo(name)
    member.type = kind
    member.mode, member.uid, member.gid = mode, uid, gid
    member.size, member.mtime, member.linkname = size, MODIFIED, link
    # The GNU form writes a name's bytes as they are; the engine reads it as it reads PAX.
    return member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
