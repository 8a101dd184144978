"""A driver that is killed, at every boundary: nothing is lost, repeated or guessed.

The sessions are null ones: what stands for the engine and the provider are files of a world that
outlives its drivers. ``test_crash_containers`` does the same with containers.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from recorder.batch import reconcile
from recorder.batch.batch import Source
from recorder.batch.reconcile import Decision
from recorder.batch.recording import Job, Recorded
from recorder.batch.runner import Host
from recorder.batch.spec import BatchSpec
from recorder.durable import write_durable
from recorder.session.leftovers import driver_identity
from tests.batch.crash import SESSIONS, Driven, driven, state_of, survive
from tests.batch.null_host import PAID, NullHost, NullSession, egress_log

COST = Decimal("0.25")
DAYS_AND_ATTEMPTS = re.compile(r"(id|status_since|last_verified|at|title): |\*\*The sessions\.|# ")
ESTIMATE = Decimal("0.00033")


@dataclass(frozen=True)
class NullWorld:
    """An engine and a provider as files: a sidecar is its log, the provider a list of who asked."""

    directory: Path

    @property
    def engine(self) -> Path:
        return self.directory / "engine"

    def host(self, _: BatchSpec) -> tuple[Source, Host]:
        self.engine.mkdir(parents=True, exist_ok=True)
        return PAID, LastingHost(self.directory / "provider", world=self)

    def watched(self) -> Sequence[Path]:
        return (self.directory,)

    def asked(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        provider = self.directory / "provider"
        for line in provider.read_text().splitlines() if provider.exists() else ():
            name, _, process = line.partition(" ")
            found.setdefault(name, []).append(process)
        return found

    def left(self, _: Sequence[int]) -> Sequence[str]:
        # A part of a file is this world's own, which no engine would have.
        return sorted(path.name for path in self.engine.glob("[!.]*"))


@dataclass
class LastingHost(NullHost):
    """What it opens is on disk, with the directory that its label names."""

    world: NullWorld = field(kw_only=True)

    def collect(self, kept: Callable[[], None], _: str) -> None:
        left = sorted(self.world.engine.glob("*.label"))
        for label in left:
            log, directory = label.with_suffix(".log"), Path(label.read_text())
            kept_log = directory / "egress.jsonl"
            if log.exists() and directory.is_dir() and not kept_log.exists():
                write_durable(kept_log, log.read_bytes())
        kept()
        for label in left:
            take_away(label)

    def open(self, job: Job) -> NullSession:
        job.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        label = self.world.engine / f"{job.session}.label"
        write_durable(label, str(job.directory).encode())
        write_durable(label.with_suffix(".log"), egress_log(job.session, 0, closed=False))
        return LastingSession(self, job, self.acts(job, 1))


class LastingSession(NullSession):
    """Its sidecar's log lasts, and holds a request before the provider is asked."""

    @property
    def _label(self) -> Path:
        assert isinstance(self.host, LastingHost)
        return self.host.world.engine / f"{self.job.session}.label"

    def run(self, before_start: Callable[[], None], halt: threading.Event) -> Recorded:
        recorded = super().run(before_start, halt)
        write_durable(self._label.with_suffix(".log"), egress_log(self.job.session, 1))
        return recorded

    def _spend(self) -> None:
        write_durable(
            self._label.with_suffix(".log"), egress_log(self.job.session, 1, closed=False)
        )
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = os.open(self.host.provider, flags, 0o600)
        try:
            os.write(descriptor, f"{self.job.session} {driver_identity()}\n".encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self) -> None:
        if self._label.exists():
            take_away(self._label)


def take_away(label: Path) -> None:
    for path in (label.with_suffix(".log"), label):
        path.unlink(missing_ok=True)


def decide(out: Path, name: str) -> None:
    """As ``recorder batch reconcile OUT --again NAME --reason TEXT`` does."""
    decision = Decision({name: "again"}, None, "as a test decides")
    assert len(reconcile.decide(out, decision, nothing_to_collect)) == 1


def nothing_to_collect(*_: object) -> None:
    raise AssertionError("the driver that refused had collected everything")


@dataclass(frozen=True)
class Whole:
    """A batch that was not interrupted."""

    driven: Driven
    totals: Decimal
    transcripts: Mapping[str, tuple[str, ...]]


def transcripts_of(directory: Path) -> Mapping[str, tuple[str, ...]]:
    """What each transcript states, without its days and without what it counts of attempts."""
    return {
        path.name: tuple(
            line for line in path.read_text().splitlines() if not DAYS_AND_ATTEMPTS.match(line)
        )
        for path in (directory / "out/assembled").iterdir()
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    directory = tmp_path_factory.mktemp("whole")
    world = NullWorld(directory / "world")
    ended = driven(directory, world)
    assert ended.code == 0, ended
    assert {name: len(processes) for name, processes in world.asked().items()} == dict.fromkeys(
        state_of(directory / "out").sessions, 1
    )
    return Whole(ended, state_of(directory / "out").totals().usd, transcripts_of(directory))


def test_a_batch_reaches_boundaries_of_every_kind(whole: Whole) -> None:
    kinds = Counter(name.partition(" ")[0] for name in whole.driven.reached)
    assert kinds["fdatasync"] >= 2 * SESSIONS
    assert kinds["pwrite"] >= 4 * SESSIONS
    assert kinds["replace"] >= 6 * SESSIONS
    assert kinds["fsync"] >= 12 * SESSIONS
    assert whole.totals == SESSIONS * COST


def killed_at(number: int, directory: Path, whole: Whole) -> bool:
    """Whether a person had to decide after a driver was killed at a boundary."""
    directory.mkdir(parents=True)
    world = NullWorld(directory / "world")
    survived = survive(directory, world, number, decide)
    # What was spent twice is what a person decided, at its known cost, and nothing else.
    asked = sum(map(len, world.asked().values()))
    assert asked <= SESSIONS + len(survived.undecided), number
    totals = state_of(directory / "out").totals()
    assert totals.usd == whole.totals + survived.abandoned, number
    assert survived.abandoned in (0, ESTIMATE), number
    assert transcripts_of(directory) == whole.transcripts, number
    shutil.rmtree(directory)
    return bool(survived.undecided)


@pytest.mark.timeout(900)
def test_a_driver_killed_at_any_boundary_loses_and_repeats_nothing(
    whole: Whole,
) -> None:
    numbers = range(1, len(whole.driven.reached) + 1)
    # In memory, where thousands of fsyncs cost nothing: a killed process loses nothing there. And
    # processes, because two threads that wait for processes take each other's exit codes.
    with (
        TemporaryDirectory(prefix="recorder-crash.", dir="/dev/shm") as memory,
        ProcessPoolExecutor(2, get_context("forkserver")) as at_once,
    ):
        directories = [Path(memory) / str(number) for number in numbers]
        decided = Counter(at_once.map(killed_at, numbers, directories, repeat(whole)))
    # Both ways of going on were met, at every session.
    assert decided[True] >= SESSIONS
    assert decided[False] >= SESSIONS
