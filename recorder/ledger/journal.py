"""The one writer of a ledger. Whoever opens it holds the batch's lock.

A line is on disk when ``append`` returns. What could not be written stops everything: the journal
takes nothing more, because a record with a hole is none.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from msgspec import structs

from recorder.durable import sync_directory
from recorder.ledger.chain import LEDGER, Reading, digest_of, encode, read, require_sound
from recorder.ledger.entries import LedgerCut, Line, RunStart
from recorder.ledger.state import State, fold_reading
from recorder.lock import lock_alone
from recorder.plain_file import read_plain
from recorder.refusal import ExitCode, Refusal


def milliseconds() -> int:
    return time.time_ns() // 1_000_000


class Journal:
    """A ledger that is open for writing. ``state`` follows every line that is written.

    Every method may be called from any thread. One thread of its own does the writing: an interrupt
    that breaks into whoever waits for a line does not break into the line.
    """

    def __init__(
        self,
        path: Path,
        descriptor: int,
        reading: Reading,
        state: State,
        clock: Callable[[], int],
        writer: Executor,
    ) -> None:
        self.path = path
        self.state = state
        self._descriptor = descriptor
        self._size = reading.size
        self._previous = reading.last
        self._first = reading.first
        self._clock = clock
        self._writer = writer
        self._reading_state = threading.Lock()
        self._broken: OSError | None = None

    @property
    def identity(self) -> str:
        """What tells this ledger from every other: the digest of its first line; empty before."""
        return self._first

    def append(self, *lines: Line) -> None:
        """Write lines, all of them durable when it returns.

        Raises ``OSError`` where they could not be written, and for every line after that;
        ``OrderError`` for one that cannot follow.
        """
        self._writer.submit(self._append, lines).result()

    def require_in_place(self) -> None:
        """Refusal 19 where the file under the ledger's name is not this one any more.

        Whoever moved the directory meanwhile would have sessions in one and the ledger in another.
        """
        own = os.fstat(self._descriptor)
        try:
            found = os.stat(self.path, follow_symlinks=False)  # noqa: PTH116 - beside fstat
        except FileNotFoundError:
            # Moved, with its directory or alone: the same as replaced.
            found = None
        if found is None or (found.st_dev, found.st_ino) != (own.st_dev, own.st_ino):
            raise Refusal(
                ExitCode.CORRUPT,
                f"{self.path}: was moved or replaced while a driver writes it: put it back",
            )

    @contextmanager
    def settled(self) -> Iterator[State]:
        """The state while no line is taken into it. Nothing may be appended inside."""
        with self._reading_state:
            yield self.state

    def cut(self, torn: bytes) -> None:
        """Put the line that says so over a torn tail.

        It is written over the tail's own bytes, so that at no moment both are missing.
        """
        self.append(LedgerCut(bytes=len(torn), sha256=digest_of(torn)))
        os.ftruncate(self._descriptor, self._size)
        os.fdatasync(self._descriptor)

    def _append(self, lines: Sequence[Line]) -> None:
        if self._broken is not None:
            raise OSError(self._broken.errno, self._broken.strerror, str(self.path))
        try:
            self._write(lines)
        except OSError as error:
            self._broken = error
            raise OSError(error.errno, error.strerror, str(self.path)) from error
        except BaseException:
            self._broken = OSError(errno.EIO, "a line before this one was not written")
            raise

    def _write(self, lines: Sequence[Line]) -> None:
        data = bytearray()
        with self._reading_state:
            for line in lines:
                run = self.state.run
                stamped = structs.replace(
                    line,
                    ts=self._clock(),
                    run=run + 1 if isinstance(line, RunStart) else max(run, 1),
                    sequence=self.state.lines + 1,
                    previous=self._previous,
                )
                self.state.take(stamped)
                text = encode(stamped)
                self._previous = digest_of(text[:-1])
                self._first = self._first or self._previous
                data += text
        written = 0
        while written < len(data):
            written += os.pwrite(self._descriptor, memoryview(data)[written:], self._size + written)
        os.fdatasync(self._descriptor)
        self._size += len(data)


@contextmanager
def open_journal(directory: Path, clock: Callable[[], int] = milliseconds) -> Iterator[Journal]:
    """The ledger of a batch's directory, made where there is none, its torn tail cut.

    Refusal 19 for one that is corrupt, a link or no plain file, 20 while another driver has it. The
    caller holds the batch's lock; the ledger is locked too, because a lock file is easily taken for
    a stale one and removed, and the ledger is not.
    """
    path = directory / LEDGER
    if path.is_symlink():
        raise Refusal(ExitCode.CORRUPT, f"{path}: is a link, and a driver makes none")
    made = not path.exists()
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            # A pipe would have us wait for whoever fills it.
            raise Refusal(ExitCode.CORRUPT, f"{path}: is no plain file, and a driver makes none")
        lock_alone(
            descriptor, f"{directory}: another driver writes its {LEDGER}: wait for it to end"
        )
        if made:
            sync_directory(directory)
        reading = read(read_plain(path))
        state, faults = fold_reading(reading)
        require_sound(faults, str(path))
        with ThreadPoolExecutor(1) as writer:
            journal = Journal(path, descriptor, reading, state, clock, writer)
            if reading.torn:
                journal.cut(reading.torn)
            yield journal
    finally:
        os.close(descriptor)


def read_state(directory: Path) -> State | None:
    """What the ledger of a directory says; None where there is none. Nothing is written.

    A torn tail is not read: a driver may be writing it. Refusal 19 for a corrupt ledger.
    """
    path = directory / LEDGER
    try:
        data = read_plain(path)
    except FileNotFoundError:
        return None
    state, faults = fold_reading(read(data))
    require_sound(faults, str(path))
    return state
