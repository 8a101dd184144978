"""A batch of six sessions whose driver is killed at one boundary, and goes on.

Each driver is a process of its own. What a session cost is counted where it was spent: the provider
of a world outlives every driver and knows by which process of which session it was asked.
"""

from __future__ import annotations

import errno
import itertools
import json
import multiprocessing
import secrets
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Protocol

from recorder.batch.batch import Source
from recorder.batch.driving import Order, drive
from recorder.batch.given import given_of
from recorder.batch.runner import Host
from recorder.batch.spec import BatchSpec, LineSpec
from recorder.evidence.pricing import shipped_prices
from recorder.ledger.chain import LEDGER, read
from recorder.ledger.entries import SessionStart
from recorder.ledger.state import State, fold_reading
from recorder.refusal import ExitCode, Refusal
from recorder.session import leftovers
from tests.batch.faults import Boundaries
from tests.session.stage import MODEL, Scene, write_corpus

SESSIONS = 6
SESSION_DOLLARS = 0.5
DRIVER_SECONDS = 60.0

# Drivers are forked from a process that has imported everything and started no thread.
_DRIVERS = multiprocessing.get_context("forkserver")
_DRIVERS.set_forkserver_preload(["tests.batch.crash"])
# Read once, there: it takes as long as a driver's other work.
shipped_prices()


class World(Protocol):
    """What is outside of a driver: the provider, and what sessions run in."""

    def host(self, spec: BatchSpec) -> tuple[Source, Host]:
        """For one driver, in its own process."""

    def watched(self) -> Sequence[Path]:
        """Directories whose changes are boundaries too."""

    def asked(self) -> Mapping[str, Sequence[str]]:
        """Each process that asked the provider for something, by its session, each once."""

    def left(self, drivers: Sequence[int]) -> Sequence[str]:
        """What drivers, by their process ids, left running or lying on the engine."""


@dataclass(frozen=True)
class Driven:
    """A driver that ended. ``code`` is None where it was killed."""

    process: int
    code: int | None
    reasons: tuple[str, ...]
    reached: tuple[str, ...]


def spec_of(directory: Path, parallel: int) -> BatchSpec:
    corpus = directory / "corpus"
    if not corpus.exists():
        write_corpus(corpus, Scene(turns=()))
        declaration = corpus / ".headwater/probe.yml"
        text = declaration.read_text()
        declaration.write_text(text.replace("repetitions: 1", f"repetitions: {SESSIONS}"))
    return BatchSpec(
        corpus=str(corpus),
        model=MODEL,
        lines=(LineSpec(tier="regression", arm="present"),),
        parallel=parallel,
        session_dollars=SESSION_DOLLARS,
    )


def driven(
    directory: Path,
    world: World,
    *,
    kill_at: int = 0,
    parallel: int = 1,
    clock_back: float = 0.0,
) -> Driven:
    """Run a driver over ``directory/out`` in a process of its own, to its end or the boundary.

    Its clock stands ``clock_back`` seconds behind.
    """
    told = directory / "told.json"
    told.unlink(missing_ok=True)
    process = _DRIVERS.Process(
        target=_drive, args=(directory, world, kill_at, parallel, clock_back)
    )
    process.start()
    number = process.pid or 0
    process.join(DRIVER_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
        raise AssertionError(f"the driver did not end within {DRIVER_SECONDS:g} s at {kill_at}")
    if process.exitcode == -signal.SIGKILL:
        return Driven(number, None, (), ())
    assert process.exitcode == 0, (directory / "stderr").read_text()
    said = json.loads(told.read_text())
    return Driven(number, said["code"], tuple(said["reasons"]), tuple(said["reached"]))


def _drive(directory: Path, world: World, kill_at: int, parallel: int, clock_back: float) -> None:
    set_back(clock_back)
    # Each driver has a name of its own on an engine, which a forked one would share.
    leftovers._TOKEN = secrets.token_hex(4)
    boundaries = Boundaries([directory / "out", *world.watched()], kill_at)
    spec = spec_of(directory, parallel)
    source, host = world.host(spec)
    boundaries.install()
    reasons: tuple[str, ...] = ()
    code = 0
    with (directory / "stderr").open("w") as errors, redirect_stderr(errors):
        try:
            drive(
                spec,
                given_of(spec),
                directory / "corpus",
                directory / "out",
                source,
                host,
                Order(stop=threading.Event(), heartbeat=0),
            )
        except Refusal as refusal:
            code, reasons = int(refusal.code), tuple(refusal.reasons)
        except OSError as error:
            # As the command says it (recorder.cli.app): a full disk is 16.
            if error.errno != errno.ENOSPC:
                raise
            code = int(ExitCode.CAP)
        except BaseException:
            traceback.print_exc(file=errors)
            raise
    (directory / "told.json").write_text(
        json.dumps({"code": code, "reasons": reasons, "reached": boundaries.reached})
    )


def set_back(seconds: float) -> None:
    """From here on this process's clock stands behind; what measures spans does not."""
    seconds_now, nanoseconds_now = time.time, time.time_ns
    time.time = lambda: seconds_now() - seconds
    time.time_ns = lambda: nanoseconds_now() - int(seconds * 1e9)


def state_of(out: Path) -> State:
    """What the ledger says, which is sound to its last byte."""
    reading = read((out / LEDGER).read_bytes())
    state, faults = fold_reading(reading)
    assert faults == ()
    assert reading.torn == b""
    return state


@dataclass(frozen=True)
class Survived:
    """A batch that was killed once and brought to its end."""

    undecided: tuple[str, ...]
    abandoned: Decimal


def survive(
    directory: Path,
    world: World,
    kill_at: int,
    decide: Callable[[Path, str], None],
    *,
    parallel: int = 1,
) -> Survived:
    """Kill a driver at a boundary, go on, decide what is uncertain, and hold what must hold."""
    out = directory / "out"
    killed = driven(directory, world, kill_at=kill_at, parallel=parallel)
    drivers = [killed.process]
    assert killed.code is None, f"boundary {kill_at} was not reached"
    resumed = driven(directory, world, parallel=parallel)
    drivers.append(resumed.process)
    undecided: tuple[str, ...] = ()
    if resumed.code == ExitCode.UNCERTAIN:
        undecided = tuple(attempt.start.session for attempt in state_of(out).unended())
        assert undecided
        assert all(name in " ".join(resumed.reasons) for name in undecided)
        for name in undecided:
            decide(out, name)
        resumed = driven(directory, world, parallel=parallel)
        drivers.append(resumed.process)
    assert resumed.code == 0, (kill_at, resumed)
    state = state_of(out)
    asked = world.asked()
    abandoned = Decimal(0)
    assert len(state.sessions) == SESSIONS
    for name, attempts in state.sessions.items():
        # Nothing is lost: its last attempt is a recording, and its files are there.
        assert attempts[-1].standing == "recorded", name
        assert (out / "sessions" / name / "record.md").exists(), name
        for before, after in itertools.pairwise(attempts):
            _hold_reason(after.start, before.requests)
            if after.start.why == "decided":
                cost = before.cost
                abandoned += getattr(cost, "usd", Decimal(0))
        # Nothing is repeated: whoever asked the provider is an attempt that ended, or one that a
        # person decided about.
        spent = sum(attempt.requests != 0 for attempt in attempts)
        assert len(asked.get(name, ())) <= spent, (kill_at, name, asked.get(name), attempts)
    assert list(world.left(drivers)) == [], kill_at
    # What is part of a file stays with the attempt that was writing it.
    parts = [path for path in out.rglob(".*.part") if ".attempt-" not in path.parent.name]
    assert parts == [], kill_at
    return Survived(undecided, abandoned)


def _hold_reason(start: SessionStart, requests: int | None) -> None:
    assert start.why in ("unspent", "decided"), start
    if start.why == "unspent":
        assert requests == 0, start
