"""The engine's archive of ``/workspace``, read as a stream and never extracted.

The bytes come from a container whose session chose every name, mode and content. So nothing
here follows a link, makes a file under a name of the archive, or holds a file in memory that
is larger than a fixed block; and whatever is not read is named, because an empty list would
say that it was looked at.

Two things the engine's archive leaves out without a word. What has a path that is too long for the
engine to look at shows by its folder, so a folder that deep counts as not read. Unix sockets
cannot be seen here at all: they hold no bytes, and a file that one took the place of is removed.
"""

# Names are bytes here, and pathlib holds none.
# ruff: noqa: PTH118

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tarfile import HeaderError
from typing import IO, cast

from recorder.refusal import ExitCode, Refusal
from recorder.workspace.exclusion import HEAD_BYTES, exclusion
from recorder.workspace.manifest import BLOCK, Entry, Manifest, digest_of, read_blocks

MEGABYTE = 1 << 20
# The engine walks by full path, which the kernel takes up to 4,095 bytes: a folder is seen where
# what lies in it (a name has up to 255) is not. The rest of the margin is for a folder of the
# engine's own before the path.
DEEPEST_FOLDER = 4096 - 512


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """What is read of one archive. All sizes are bytes.

    ``skipped_bytes`` bounds what is received only to be thrown away: a file over the limits
    that is longer than what is left of it ends the reading there. A 4 GB sparse file cost
    17.8 s to receive where nothing stopped it.
    """

    file_bytes: int = 64 * MEGABYTE
    total_bytes: int = 1024 * MEGABYTE
    files: int = 100_000
    skipped_bytes: int = 256 * MEGABYTE


@dataclass(frozen=True, slots=True, order=True)
class Left:
    """A path of the workspace that was named and left, with why."""

    path: bytes
    why: str


@dataclass(frozen=True)
class Keep:
    """Where copies of new and changed files go: ``directory/<hex of the digest>``, mode 0600.

    ``before`` says what is new or changed, and ``arm`` is the tree it was taken of: a new hard
    link to a file that did not change has its bytes there, the archive holds them once.
    ``log_directory`` (relative, bytes) is where the session's hooks log inside the workspace,
    if they do.
    """

    directory: Path
    before: Manifest
    arm: Path | None = None
    log_directory: bytes | None = None

    def path_of(self, sha256: str) -> Path:
        """Where the copy of a digest lies. No part of a name comes from the session."""
        return self.directory / sha256.removeprefix("sha256:")


@dataclass(frozen=True)
class ArchiveReading:
    """What one archive held.

    ``entries`` are the regular files, and the links as their own text, sorted by path.
    ``left`` are things that are no plain file or have no plain name; ``not_read`` are files
    over a limit, and folders too deep to be read. ``stopped`` says why the rest of the archive
    was not received, or is None.
    ``excluded`` are new or changed files that do not count as produced. ``kept`` are the
    digests whose copies lie in the directory of ``Keep``.
    """

    entries: tuple[Entry, ...]
    left: tuple[Left, ...] = ()
    not_read: tuple[Left, ...] = ()
    stopped: str | None = None
    excluded: tuple[Left, ...] = ()
    kept: frozenset[str] = frozenset()
    by_path: Mapping[bytes, Entry] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_path", {entry.path: entry for entry in self.entries})

    def digest(self, path: bytes) -> str | None:
        """The digest of a regular file as the session left it, or None where none was read."""
        entry = self.by_path.get(path)
        return None if entry is None or entry.is_link else entry.sha256


def read_archive(
    chunks: Iterable[bytes],
    *,
    prefix: str,
    limits: ArchiveLimits | None = None,
    keep: Keep | None = None,
) -> ArchiveReading:
    """Read a tar stream in chunks of any size, in flat memory.

    ``prefix`` is the folder every name lies under (``workspace``). Refuses (13) a stream that
    is no whole archive: a cut one reads like a session that removed files. The chunks are
    closed where the reading stops early, if they can be closed.
    """
    reader = _Reader(prefix.strip("/").encode(), limits or ArchiveLimits(), keep)
    try:
        return reader.read(chunks)
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise Refusal(
            ExitCode.OBSERVATION,
            f"the archive of /{prefix.strip('/')} is not whole ({error}); "
            "the session's workspace could not be read, record it again",
        ) from error
    finally:
        if reader.stopped is not None and (close := getattr(chunks, "close", None)):
            close()


def count_lines(
    chunks: Iterable[bytes],
    *,
    suffix: bytes,
    containing: bytes = b"",
    limits: ArchiveLimits | None = None,
) -> int | None:
    """How many lines the regular files of an archive hold whose name ends in ``suffix``.

    With ``containing`` only lines that hold it count. None where the archive is not whole or
    goes beyond the limits: what was not counted is never 0.
    """
    bounds = limits or ArchiveLimits()
    count = taken = 0
    try:
        with _open(chunks) as archive:
            for number, member in enumerate(archive):
                taken += _stored_bytes(member)
                if number >= bounds.files or taken > bounds.total_bytes:
                    return None
                if member.isreg() and os.fsencode(member.name).endswith(suffix):
                    if member.size > bounds.file_bytes:
                        return None
                    file = archive.extractfile(member)
                    count += sum(containing in line for line in file or ())
                archive.members = []  # type: ignore[attr-defined]
    except (tarfile.TarError, EOFError, ValueError):
        return None
    return count


def _open(chunks: Iterable[bytes]) -> tarfile.TarFile:
    return tarfile.open(
        mode="r|",
        fileobj=cast(IO[bytes], _Chunks(chunks)),
        tarinfo=_Header,
        encoding="utf-8",
        errors="surrogateescape",
        bufsize=16 * 1024,
    )


class _Chunks(io.RawIOBase):
    """Chunks as a file that only reads forward."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = memoryview(b"")

    def read(self, size: int = -1, /) -> bytes:
        if size < 0:
            raise ValueError("an archive is never read whole")
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return b""
            self._rest = memoryview(chunk)
        taken, self._rest = self._rest[:size], self._rest[size:]
        return bytes(taken)


class _Header(tarfile.TarInfo):
    """A header whose faults are told: tarfile ends quietly at a bad or a missing one."""

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> _Header:
        try:
            return super().fromtarfile(tarfile)
        except HeaderError as error:
            # The one good end, a block of zeros, has a class of its own that is not public.
            if type(error).__name__ == "EOFHeaderError":
                raise
            raise EOFError(f"{error}, at byte {tarfile.offset}") from error


class _StoppedError(Exception):
    """The rest of the archive is not received."""


class _Reader:
    def __init__(self, prefix: bytes, limits: ArchiveLimits, keep: Keep | None) -> None:
        self.prefix, self.limits, self.keep = prefix, limits, keep
        self.entries: dict[bytes, Entry] = {}
        self.left: dict[bytes, str] = {}
        self.not_read: dict[bytes, str] = {}
        self.excluded: dict[bytes, str] = {}
        self.kept: set[str] = set()
        self.stopped: str | None = None
        self.total = 0
        self.skipped = 0
        self.seen = 0

    def read(self, chunks: Iterable[bytes]) -> ArchiveReading:
        with _open(chunks) as archive:
            try:
                for member in archive:
                    self._member(archive, member)
                    # TarFile remembers every member for a random access that never comes.
                    archive.members = []  # type: ignore[attr-defined]
            except _StoppedError as stop:
                self.stopped = str(stop)
        for path in self.left.keys() | self.not_read.keys():
            self.entries.pop(path, None)
            self.excluded.pop(path, None)
        return ArchiveReading(
            entries=tuple(sorted(self.entries.values())),
            left=_named(self.left),
            not_read=_named(self.not_read),
            stopped=self.stopped,
            excluded=_named(self.excluded),
            kept=frozenset(self.kept),
        )

    def _member(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        name = os.fsencode(member.name)
        path = _relative(name, self.prefix)
        if path is None:
            self.left[name] = "its name leaves the workspace"
        elif path == b"":
            return
        elif member.isdir():
            # A folder is no entry, but one that took a file's place hides nothing either.
            if len(self.prefix) + len(path) + 2 >= DEEPEST_FOLDER:
                self.not_read[path] = "a folder too deep for the engine to read what lies in it"
            return
        elif path in self.entries or path in self.left or path in self.not_read:
            self.left[path] = "the archive names it twice"
        elif self.seen >= self.limits.files:
            raise _StoppedError(
                f"more than {self.limits.files} files: the archive was not read beyond them"
            )
        else:
            self.seen += 1
            if self._plain(archive, member, path):
                return
        self._pass_over(member)

    def _plain(self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: bytes) -> bool:
        """Take one thing by its kind. False where its data is still to be passed over."""
        if member.issym():
            target = os.fsencode(member.linkname)
            self.entries[path] = Entry(path, stat.S_IFLNK | 0o777, len(target), digest_of(target))
        elif member.islnk():
            self._hard_link(member, path)
        elif not member.isreg():
            self.left[path] = _KINDS.get(member.type, "a kind of file the archive does not know")
        elif member.mode & (stat.S_ISUID | stat.S_ISGID):
            self.left[path] = "carries a set-id bit"
        elif member.size > self.limits.file_bytes:
            self.not_read[path] = (
                f"{member.size} bytes, over the limit of {self.limits.file_bytes} a file"
            )
        elif self.total + member.size > self.limits.total_bytes:
            self.not_read[path] = (
                f"{member.size} bytes, over the limit of {self.limits.total_bytes} in all"
            )
        else:
            self._regular(archive, member, path)
            return True
        return False

    def _pass_over(self, member: tarfile.TarInfo) -> None:
        """Throw away the data that follows, or stop where there is too much of it."""
        stored = _stored_bytes(member)
        self.skipped += stored
        if self.skipped > self.limits.skipped_bytes:
            raise _StoppedError(
                f"{stored} bytes of one file not read: the archive was not read beyond it"
            )

    def _hard_link(self, member: tarfile.TarInfo, path: bytes) -> None:
        target = _relative(os.fsencode(member.linkname), self.prefix)
        if target is None:
            self.left[path] = "a hard link whose target leaves the workspace"
        elif (known := self.entries.get(target)) is not None:
            entry = Entry(path, known.mode, known.size, known.sha256)
            self.entries[path] = entry
            if not entry.is_link:
                self._second_name(entry, target)
        elif target in self.not_read:
            self.not_read[path] = self.not_read[target]
        else:
            why = self.left.get(target, "nothing the archive held before it")
            self.left[path] = f"a hard link to something left ({why})"

    def _second_name(self, entry: Entry, target: bytes) -> None:
        """A second name of a file that was read. Its bytes passed, so a copy may be gone."""
        keep = self.keep
        if keep is None or not _is_new(entry, keep.before):
            return
        known = keep.before.by_path.get(target)
        if entry.sha256 in self.kept:
            blocks = read_blocks(os.fsencode(keep.path_of(entry.sha256)))
        elif keep.arm is not None and known is not None and known.sha256 == entry.sha256:
            blocks = read_blocks(os.path.join(os.fsencode(keep.arm), target))
        else:
            self.left[entry.path] = "a hard link to a file whose bytes were not kept"
            return
        copy, hashed, head = _Copy(keep), hashlib.sha256(), b""
        try:
            for block in blocks:
                head = head or block[:HEAD_BYTES]
                hashed.update(block)
                copy.take(block)
            if "sha256:" + hashed.hexdigest() != entry.sha256:
                self.left[entry.path] = "a hard link to a file that changed on this host"
                return
            self._settle(entry, head, copy)
        finally:
            copy.drop()

    def _regular(self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: bytes) -> None:
        file = archive.extractfile(member)
        if file is None:
            raise tarfile.ReadError(f"no data for member {member.name!r}")
        mode = stat.S_IFREG | (member.mode & 0o777)
        self.total += member.size
        with file:
            copy = _Copy(self.keep)
            try:
                hashed = hashlib.sha256()
                head = b""
                size = 0
                while block := file.read(min(BLOCK, member.size - size)):
                    if size == 0:
                        head = block[:HEAD_BYTES]
                    size += len(block)
                    hashed.update(block)
                    copy.take(block)
                    if size == member.size:
                        break
                if size != member.size:
                    raise tarfile.ReadError("unexpected end of data")
                entry = Entry(path, mode, size, "sha256:" + hashed.hexdigest())
                self.entries[path] = entry
                self._settle(entry, head, copy)
            finally:
                copy.drop()

    def _settle(self, entry: Entry, head: bytes, copy: _Copy) -> None:
        keep = self.keep
        if keep is None or not _is_new(entry, keep.before):
            return
        why = exclusion(entry.path, head, log_directory=keep.log_directory)
        if why is not None:
            self.excluded[entry.path] = why
        else:
            copy.store(keep.path_of(entry.sha256))
            self.kept.add(entry.sha256)


class _Copy:
    """A file on its way through: in memory while it is one block, else in a temporary file."""

    def __init__(self, keep: Keep | None) -> None:
        self._partial = None if keep is None else keep.directory / ".partial"
        self._first = b""
        self._descriptor: int | None = None

    def take(self, block: bytes) -> None:
        if self._partial is None:
            return
        if not self._first and self._descriptor is None:
            self._first = block
            return
        _write_all(self._open(self._partial), block)

    def store(self, path: Path) -> None:
        if self._partial is None or (self._descriptor is None and path.exists()):
            return
        os.close(self._open(self._partial))
        self._descriptor = None
        self._partial.replace(path)

    def drop(self) -> None:
        if self._partial is not None and self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            self._partial.unlink()

    def _open(self, partial: Path) -> int:
        """The temporary file, made with what was held in memory where it is not there yet."""
        if self._descriptor is None:
            self._descriptor = _create(partial)
            _write_all(self._descriptor, self._first)
            self._first = b""
        return self._descriptor


def _create(path: Path) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, 0o600)


def _write_all(descriptor: int, block: bytes) -> None:
    rest = memoryview(block)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _is_new(entry: Entry, before: Manifest) -> bool:
    known = before.by_path.get(entry.path)
    return known is None or known.sha256 != entry.sha256 or known.is_link


def _relative(name: bytes, prefix: bytes) -> bytes | None:
    """The name below the prefix, ``b""`` for the prefix itself, None where it leaves."""
    if name.startswith(b"/"):
        return None
    parts = name.rstrip(b"/").split(b"/")
    while parts and parts[0] == b".":
        parts = parts[1:]
    if prefix:
        own = prefix.split(b"/")
        if parts[: len(own)] != own:
            return None
        parts = parts[len(own) :]
    if any(part in (b"", b".", b"..") for part in parts):
        return None
    return b"/".join(parts)


def _stored_bytes(member: tarfile.TarInfo) -> int:
    """How many bytes of data follow a header: a sparse file stores less than its size."""
    if member.issym() or member.islnk() or member.isdir():
        return 0
    pieces = cast("list[tuple[int, int]] | None", getattr(member, "sparse", None))
    return member.size if pieces is None else sum(length for _, length in pieces)


def _named(why: Mapping[bytes, str]) -> tuple[Left, ...]:
    return tuple(sorted(Left(path, reason) for path, reason in why.items()))


_KINDS: Mapping[bytes, str] = {
    tarfile.FIFOTYPE: "a FIFO",
    tarfile.CHRTYPE: "a character device",
    tarfile.BLKTYPE: "a block device",
}
