"""What befalls the host under a batch: a full disk, a clock that is set back, a dead sidecar."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from recorder.engine import rootless
from recorder.engine.client import Engine, open_engine
from recorder.engine.connect import choice, docker_host
from recorder.ledger.journal import read_state
from recorder.refusal import ExitCode
from recorder.session.leftovers import DRIVER_LABEL
from tests.batch.crash import SESSIONS, driven, state_of
from tests.batch.test_batch import batch_file
from tests.batch.test_crash import NullWorld, decide
from tests.recording.rig import eventually, recorder, running, things_of

DAY = 86400.0


@contextmanager
def small_disk(directory: Path, kibibytes: int) -> Iterator[None]:
    """A file system of its own at a directory, of so many bytes."""
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kibibytes}k,mode=755", "tmpfs"]
    subprocess.run([*mount, str(directory)], check=True, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        subprocess.run(["umount", directory], check=True, stdin=subprocess.DEVNULL)


def grow(directory: Path) -> None:
    subprocess.run(
        ["mount", "-o", "remount,size=64m", directory], check=True, stdin=subprocess.DEVNULL
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_disk_that_fills_up_anywhere_stops_the_batch_and_loses_nothing(tmp_path: Path) -> None:
    full = 0
    # From a disk that holds no ledger to one that holds the whole batch.
    for number, kibibytes in enumerate(range(8, 400, 12)):
        directory = tmp_path / str(number)
        directory.mkdir()
        world = NullWorld(directory / "world")
        out = directory / "out"
        with small_disk(out, kibibytes):
            ended = driven(directory, world)
            assert ended.code in (0, ExitCode.CAP), (kibibytes, ended)
            full += ended.code == ExitCode.CAP
            grow(out)
            after = driven(directory, world)
            undecided: tuple[str, ...] = ()
            if after.code == ExitCode.UNCERTAIN:
                undecided = tuple(attempt.start.session for attempt in state_of(out).unended())
                for name in undecided:
                    decide(out, name)
                after = driven(directory, world)
            assert after.code == 0, (kibibytes, after)
            state = state_of(out)
            assert state.totals().recorded == SESSIONS
            asked = world.asked()
            for name, attempts in state.sessions.items():
                spent = sum(attempt.requests != 0 for attempt in attempts)
                assert len(asked[name]) <= spent, (kibibytes, name)
            assert sum(map(len, asked.values())) <= SESSIONS + len(undecided)
            assert world.left(()) == []
    assert full >= 10


def test_a_clock_that_is_set_back_changes_nothing_that_is_decided(tmp_path: Path) -> None:
    world = NullWorld(tmp_path / "world")
    assert driven(tmp_path, world, kill_at=120).code is None
    after = driven(tmp_path, world, clock_back=DAY)
    if after.code == ExitCode.UNCERTAIN:
        for attempt in state_of(tmp_path / "out").unended():
            decide(tmp_path / "out", attempt.start.session)
        after = driven(tmp_path, world, clock_back=2 * DAY)
    assert after.code == 0, after
    state = state_of(tmp_path / "out")
    assert state.totals().recorded == SESSIONS
    lasted = [attempt.end.duration_ms for attempt in state.attempts() if attempt.end is not None]
    assert all(0 <= milliseconds < 60_000 for milliseconds in lasted)


def of_role(engine: Engine, process: int, role: str) -> list[Mapping[str, object]]:
    return [
        found
        for found in engine.containers(DRIVER_LABEL)
        if f":{process}:" in found["Labels"][DRIVER_LABEL]
        and found["Labels"]["recorder.role"] == role
        and found["State"] == "running"
    ]


@pytest.mark.engine
@pytest.mark.slow
def test_a_sidecar_that_is_killed_costs_its_session_and_no_other(tmp_path: Path) -> None:
    spec, out = batch_file(tmp_path), tmp_path / "out"
    engine = open_engine(docker_host())
    try:
        with running("batch", "run", spec, "--out", out) as process:
            eventually("a session runs", lambda: of_role(engine, process.pid, "session"), 60)
            (session, *_) = of_role(engine, process.pid, "session")
            name = session["Labels"]["recorder.session"]  # type: ignore[index]
            (sidecar,) = (
                found
                for found in of_role(engine, process.pid, "sidecar")
                if found["Labels"]["recorder.session"] == name  # type: ignore[index]
            )
            engine.kill(str(sidecar["Id"]))
            code = process.wait(100)
        assert code in (ExitCode.FAILED, ExitCode.LEFT), code
        assert things_of(engine, process.pid) == []
    finally:
        engine.close()
    state = read_state(out)
    assert state is not None
    assert state.standing(str(name)) == "failed"
    again = recorder("batch", "run", spec, "--out", out, "--retry", "failed")
    assert again.code == 0, again.err
    state = read_state(out)
    assert state is not None
    assert state.totals().recorded == SESSIONS
    assert [len(attempts) for attempts in state.sessions.values()].count(2) == 1


@pytest.mark.engine
@pytest.mark.slow
def test_an_engine_that_is_restarted_under_a_batch_loses_no_session(tmp_path: Path) -> None:
    if choice().origin != "recorder engine":
        pytest.skip("the engine is the user's own, which no test restarts")
    spec, out = batch_file(tmp_path), tmp_path / "out"
    engine = open_engine(docker_host())
    try:
        with running("batch", "run", spec, "--out", out) as process:
            eventually("a session runs", lambda: of_role(engine, process.pid, "session"), 60)
            rootless.stop()
            restarted = threading.Thread(target=rootless.start)
            restarted.start()
            code = process.wait(200)
            restarted.join(60)
    finally:
        engine.close()
    assert code in (ExitCode.MISSING, ExitCode.FAILED, ExitCode.LEFT), code
    again = recorder("batch", "run", spec, "--out", out, "--retry", "failed")
    assert again.code == 0, again.err
    state = read_state(out)
    assert state is not None
    assert state.totals().recorded == SESSIONS
    engine = open_engine(docker_host())
    try:
        assert things_of(engine, process.pid) == []
    finally:
        engine.close()
