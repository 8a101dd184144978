"""Digests and citations read from a workspace directory on disk, which a session wrote.

Every component of a path is opened without following links, and only regular files are read: a
link, a pipe or a device that the session left is not a document.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recorder.refusal import ExitCode, Refusal
from recorder.transform.cites import cites_in
from recorder.transform.produced import ProducedFile

MAXIMUM_BYTES = 1 << 30

# What says that no regular file is there, as against one that could not be read.
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ENAMETOOLONG})


class WorkspaceFiles:
    """The files of one workspace, by their placed path (see ``Places``).

    A path outside the workspace is never read: it was the session's container's, and a file of
    that name here is another one. Raises ``Refusal`` (13) for a file that is there and cannot
    be read, or is over ``maximum_bytes``; (2) for a directory that cannot be entered.
    """

    def __init__(
        self, directory: Path, cites: re.Pattern[bytes], maximum_bytes: int = MAXIMUM_BYTES
    ) -> None:
        self._directory = directory
        self._cites = cites
        self._maximum_bytes = maximum_bytes
        self._digests: dict[str, str] = {}
        try:
            os.close(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        except OSError as error:
            raise Refusal(
                ExitCode.USAGE,
                f"{directory}: not a workspace that can be read ({error.strerror}); "
                "give the directory that the session worked in",
            ) from error

    def document_digest(self, path: str) -> str:
        """``sha256:<hex>`` of the file's bytes, or ``""`` where no regular file is there."""
        if path not in self._digests:
            with self._opened(path) as descriptor:
                self._digests[path] = "" if descriptor is None else self._digest(path, descriptor)
        return self._digests[path]

    def produced_file(self, path: str) -> ProducedFile:
        """The artifact with its identity and what it cites; no check read it."""
        with self._opened(path) as descriptor:
            if descriptor is None:
                return ProducedFile(path, "", ())
            digest = self._digest(path, descriptor)
            if os.fstat(descriptor).st_size == 0:
                return ProducedFile(path, digest, ())
            with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as content:
                return ProducedFile(path, digest, cites_in(content, self._cites))

    def copy(self, path: str, target: Path) -> int | None:
        """Copy the file at a placed path to ``target`` (new, 0600); its permission bits, or None
        where no regular file is there."""
        with self._opened(path) as descriptor:
            if descriptor is None:
                return None
            self._digest(path, descriptor)
            os.lseek(descriptor, 0, os.SEEK_SET)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with (
                open(descriptor, "rb", closefd=False) as source,
                os.fdopen(os.open(target, flags, 0o600), "wb") as copy,
            ):
                shutil.copyfileobj(source, copy)
            return stat.S_IMODE(os.fstat(descriptor).st_mode)

    def _digest(self, path: str, descriptor: int) -> str:
        size = os.fstat(descriptor).st_size
        if size > self._maximum_bytes:
            raise Refusal(
                ExitCode.OBSERVATION,
                f"{self._directory / path}: {size} bytes, over the limit of "
                f"{self._maximum_bytes}, so its identity was not derived; remove the file",
            )
        with open(descriptor, "rb", closefd=False) as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"

    @contextmanager
    def _opened(self, path: str) -> Iterator[int | None]:
        """A descriptor of the regular file at a placed path, or None where none is there."""
        try:
            descriptor = self._open(path)
        except OSError as error:
            if error.errno not in _ABSENT:
                raise Refusal(
                    ExitCode.OBSERVATION,
                    f"{self._directory / path}: could not be read ({error.strerror}), so its "
                    "identity was not derived; make it readable and run this again",
                ) from error
            descriptor = None
        try:
            yield descriptor
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _open(self, path: str) -> int | None:
        parts = path.split("/")
        if path.startswith("/") or "\0" in path or any(p in ("", ".", "..") for p in parts):
            return None
        common = os.O_RDONLY | os.O_CLOEXEC
        at = os.open(self._directory, common | os.O_DIRECTORY)
        try:
            for part in parts[:-1]:
                below = os.open(part, common | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                os.close(at)
                at = below
            # A pipe without a writer would hold an open for ever; a device could act on one.
            if not stat.S_ISREG(os.stat(parts[-1], dir_fd=at, follow_symlinks=False).st_mode):
                return None
            flags = common | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(parts[-1], flags, dir_fd=at)
        finally:
            os.close(at)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        return None
