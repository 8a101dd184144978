"""What a batch asks of whatever its sessions run in.

The batch knows nothing of containers: it opens a session, runs it and removes it.
``recorder.batch.containers`` is the real one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from recorder.batch.line import LaidLine
from recorder.batch.recording import Job, Recorded


class OpenedSession(Protocol):
    """A session that needs nothing but its start."""

    def run(self, before_start: Callable[[], None], halt: threading.Event) -> Recorded:
        """Run it to its end; its files are durable when this returns.

        ``before_start`` is called when nothing but the start is left to do: from then on it may
        spend. ``halt`` kills it, and ``HaltedError`` is raised.
        """

    def remove(self) -> None:
        """Take away what it ran in; may be called at any time and more than once."""


class Runner(Protocol):
    """Opens sessions, from any thread."""

    def open(self, job: Job) -> OpenedSession: ...


@dataclass(frozen=True)
class Images:
    """What sessions and sidecars run in, by the engine's own ids, and the harness's version."""

    session: str
    sidecar: str
    harness: str = ""


class Host(Protocol):
    """Where a batch's sessions run. Nothing is asked of it before ``images``.

    ``batch`` tells what is one batch's from all else: the digest of its ledger's first line.
    """

    def images(self) -> Images:
        """Refusal 3 where one is not there."""

    def collect(self, kept: Callable[[], None], batch: str) -> None:
        """Take away what dead drivers left; the caller holds the batch's lock.

        What the sessions left is in their directories when ``kept`` is called, and nothing was
        removed yet.
        """

    def running(
        self, lines: Sequence[LaidLine], out: Path, images: Images, batch: str
    ) -> AbstractContextManager[Runner]:
        """Prove the construction (12, 8, 9), then run sessions; at its end nothing is left."""

    def close(self) -> None: ...
