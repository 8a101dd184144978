"""What a tree holds: each regular file and symbolic link with its mode, size and digest.

The manifest of an arm is taken before its sessions and compared with the archive of
``/workspace`` after each. Directories are not listed: a session that only makes a directory
produced nothing.
"""

# Names are bytes here, and pathlib holds none.
# ruff: noqa: PTH115, PTH118, PTH123

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from recorder.refusal import ExitCode, Refusal
from recorder.workspace.names import escape_name, path_text, unescape_name

HEADING = "recorder manifest 1"
BLOCK = 1 << 20

_LINE = re.compile(r"(sha256:[0-9a-f]{64}) ([0-7]{6}) (0|[1-9][0-9]*) (\S+)")


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One file or link. ``path`` is relative, ``/`` between its parts, never climbing.

    ``mode`` holds the type bits too (``stat.S_IFREG`` or ``stat.S_IFLNK``). ``size`` is in
    bytes. ``sha256`` is ``sha256:<hex>`` of the file's bytes, or of a link's own text.
    """

    path: bytes
    mode: int
    size: int
    sha256: str

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)


@dataclass(frozen=True)
class Manifest:
    """The entries of one tree, sorted by path bytewise, each path once."""

    entries: tuple[Entry, ...]
    by_path: Mapping[bytes, Entry] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.entries))
        by_path = {entry.path: entry for entry in ordered}
        if len(by_path) != len(ordered):
            raise ValueError("a manifest names a path twice")
        object.__setattr__(self, "entries", ordered)
        object.__setattr__(self, "by_path", by_path)

    def digest(self, path: bytes) -> str | None:
        """The digest of a regular file of the tree, or None where it holds none."""
        entry = self.by_path.get(path)
        return None if entry is None or entry.is_link else entry.sha256


@dataclass(frozen=True, slots=True)
class Found:
    """One thing of a directory: its relative path and what ``lstat`` said of it."""

    path: bytes
    status: os.stat_result


def digest_of(content: bytes) -> str:
    """``sha256:<hex>`` of bytes, the one digest form of this project."""
    return "sha256:" + hashlib.sha256(content).hexdigest()


def walk(directory: Path, *, closed: frozenset[bytes] = frozenset()) -> Iterator[Found]:
    """Everything under a directory, sorted part by part, links and folders as themselves.

    A folder whose name is in ``closed`` is named and not entered. Refuses (2) what cannot be
    listed, so nothing is ever skipped without a word.
    """
    yield from _walk(os.fsencode(directory), b"", closed)


def _walk(root: bytes, below: bytes, closed: frozenset[bytes]) -> Iterator[Found]:
    folder = os.path.join(root, below) if below else root
    try:
        with os.scandir(folder) as listing:
            names = sorted(item.name for item in listing)
        for name in names:
            path = below + b"/" + name if below else name
            status = os.lstat(os.path.join(root, path))
            yield Found(path, status)
            if stat.S_ISDIR(status.st_mode) and name not in closed:
                yield from _walk(root, path, closed)
    except OSError as error:
        raise Refusal(
            ExitCode.USAGE,
            f"{path_text(folder)}: cannot be listed ({error.strerror}); "
            "make the whole tree readable for the user that runs the recorder",
        ) from error


def read_blocks(path: bytes) -> Iterator[bytes]:
    """A regular file in blocks, never through a link. Refuses (2) what cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb", buffering=0) as file:
            while block := file.read(BLOCK):
                yield block
    except OSError as error:
        raise Refusal(
            ExitCode.USAGE,
            f"{path_text(path)}: cannot be read ({error.strerror}); "
            "make it readable for the user that runs the recorder, or remove it",
        ) from error


def entry_of(root: Path, found: Found) -> Entry | None:
    """The entry of one thing, or None for a directory. Refuses (2) a FIFO, socket or device."""
    full = os.path.join(os.fsencode(root), found.path)
    mode = found.status.st_mode
    if stat.S_ISDIR(mode):
        return None
    if stat.S_ISLNK(mode):
        target = os.readlink(full)
        return Entry(found.path, stat.S_IFLNK | 0o777, len(target), digest_of(target))
    if not stat.S_ISREG(mode):
        raise Refusal(
            ExitCode.USAGE,
            f"{path_text(full)}: neither a file, a directory nor a link; "
            "remove it, a workspace holds no device, socket or FIFO",
        )
    hashed, size = hashlib.sha256(), 0
    for block in read_blocks(full):
        hashed.update(block)
        size += len(block)
    permissions = stat.S_IFREG | (mode & 0o777)
    return Entry(found.path, permissions, size, "sha256:" + hashed.hexdigest())


def manifest_of(directory: Path) -> Manifest:
    """The manifest of a directory on this host."""
    entries = (entry_of(directory, found) for found in walk(directory))
    return Manifest(tuple(entry for entry in entries if entry is not None))


def write_manifest(manifest: Manifest) -> str:
    """The text form: a heading, then ``digest mode size name`` a line, names escaped."""
    lines = [HEADING]
    lines += [
        f"{entry.sha256} {entry.mode:06o} {entry.size} {escape_name(entry.path)}"
        for entry in manifest.entries
    ]
    return "\n".join(lines) + "\n"


def read_manifest(text: str, name: str) -> Manifest:
    """Read the text form; ``name`` is the file's, for the refusal (19) of any other text."""
    lines = text.split("\n")
    if lines[0] != HEADING or lines[-1] != "":
        raise _corrupt(name, 1, f"not a whole manifest (it starts `{HEADING}`, ends a line)")
    return Manifest(tuple(_read_lines(lines[1:-1], name)))


def _read_lines(lines: Iterable[str], name: str) -> Iterator[Entry]:
    before = b""
    for number, line in enumerate(lines, start=2):
        parts = _LINE.fullmatch(line)
        if parts is None:
            raise _corrupt(name, number, "not `digest mode size name`")
        sha256, mode, size, escaped = parts.groups()
        try:
            path = unescape_name(escaped)
        except ValueError as error:
            raise _corrupt(name, number, str(error)) from error
        if path <= before:
            raise _corrupt(name, number, "names are not sorted, or one is there twice")
        before = path
        yield Entry(path, int(mode, 8), int(size), sha256)


def _corrupt(name: str, line: int, reason: str) -> Refusal:
    return Refusal(ExitCode.CORRUPT, f"{name}:{line}: {reason}; take the manifest again")
