"""What the driver kills a session for: its sidecar's end, a disk that fills; and a full disk."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from recorder.batch.recording import Recorded, open_session, record
from recorder.refusal import ExitCode, Refusal
from recorder.session import driver
from recorder.session.leftovers import nothing_left
from tests.recording.rig import (
    EXAMPLES,
    PROBE,
    Rig,
    eventually,
    line_of,
    own_identity,
    program_as_harness,
    recorder,
)
from tests.stream.streams import init

pytestmark = pytest.mark.engine

# One whole line, then silence for longer than any test waits.
SILENT = "cat stream; exec sleep 300"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "stream").write_bytes(init())
    return tree


def record_silent(
    rig: Rig, tree: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Recorded, Path]:
    program_as_harness(monkeypatch)
    job = rig.job(line_of(tree), "silent", SILENT, out)
    return record(open_session(rig.engine, job, rig.setting()), job, rig.setting()), job.directory


def refusal_of(recorded: Recorded, directory: Path) -> Refusal:
    kept = json.loads((directory / "evidence.json").read_bytes())["refusal"]
    assert recorded.refusal is not None
    assert kept == {"code": recorded.refusal.code, "reasons": list(recorded.refusal.reasons)}
    assert (directory / "raw.jsonl").read_bytes() == init()
    return recorded.refusal


def test_a_sidecar_that_dies_ends_its_session(
    rig: Rig, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"

    def kill_sidecar() -> None:
        raw = out / "silent" / "raw.jsonl"
        eventually("the stream began", lambda: raw.exists() and raw.stat().st_size, 30)
        (sidecar,) = [
            found["Id"]
            for found in rig.engine.containers("recorder.session=silent")
            if found["Labels"]["recorder.role"] == "sidecar"
        ]
        rig.engine.kill(sidecar)

    killing = threading.Thread(target=kill_sidecar)
    killing.start()
    recorded, directory = record_silent(rig, tree, out, monkeypatch)
    killing.join()
    refusal = refusal_of(recorded, directory)
    assert refusal.code == ExitCode.CONFINEMENT
    assert "its sidecar ended before it did" in refusal.reasons[0]
    assert recorded.evidence.seconds["session"] is not None
    assert recorded.evidence.seconds["session"] < 20
    assert (directory / "egress.jsonl").stat().st_size > 0


def test_a_disk_that_fills_kills_the_session(
    rig: Rig, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)

    def filled(_: Path) -> object:
        return usage._replace(free=10)

    monkeypatch.setattr(driver.shutil, "disk_usage", lambda _: usage)
    program_as_harness(monkeypatch)
    job = rig.job(line_of(tree), "filling", SILENT, tmp_path / "out")
    session = open_session(rig.engine, job, rig.setting())
    recorded = record(
        session,
        job,
        rig.setting(),
        before_start=lambda: monkeypatch.setattr(driver.shutil, "disk_usage", filled),
    )
    refusal = refusal_of(recorded, job.directory)
    assert refusal.code == ExitCode.CAP
    assert "bytes were free" in refusal.reasons[0]


def test_a_session_is_not_started_where_too_little_disk_is_free(
    rig: Rig, tree: Path, tmp_path: Path
) -> None:
    job = rig.job(line_of(tree), "no-room", SILENT, tmp_path / "out")
    with pytest.raises(Refusal) as refused:
        open_session(rig.engine, job, rig.setting(disk_floor=1 << 60))
    assert refused.value.code == ExitCode.CAP
    assert "free some disk" in refused.value.reasons[0]
    assert not rig.engine.containers("recorder.session=no-room")


@contextmanager
def small_disk(directory: Path, kibibytes: int) -> Iterator[Path]:
    """A file system of its own, so small that it fills."""
    directory.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kibibytes}k", "tmpfs", directory],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    with ExitStack() as undo:
        undo.callback(subprocess.run, ["umount", directory], check=True)
        yield directory


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_full_disk_is_one_line_and_leaves_nothing_running(
    rig: Rig, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program_as_harness(monkeypatch)
    own_identity(monkeypatch)
    with small_disk(tmp_path / "small", 256) as out:
        setting = rig.setting(disk_floor=0)
        job = rig.job(line_of(tree), "full", "yes", out)
        session = open_session(rig.engine, job, setting)
        with pytest.raises(OSError, match="No space left on device"):
            record(session, job, setting)
        # Its egress log had no room, so what holds it is left, ended, and collected once there is.
        left = rig.engine.containers("recorder.session=full")
        assert {container["State"] for container in left} == {"exited"}
        subprocess.run(["mount", "-o", "remount,size=8m", out], check=True)
        with pytest.raises(KeyError), nothing_left(rig.engine):
            raise KeyError
        assert not rig.engine.containers("recorder.session=full")
        assert (job.directory / "egress.jsonl").stat().st_size > 0
        assert (job.directory / "raw.jsonl").stat().st_size > 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
@pytest.mark.parametrize(
    ("kibibytes", "says"), [(4, "the disk is full: free some"), (64, "kept free: free some disk")]
)
def test_the_command_says_that_the_disk_is_full(kibibytes: int, says: str, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", kibibytes) as out:
        ended = recorder(
            *("record", "--corpus", EXAMPLES / "corpus", "--probe", PROBE, "--session", "one"),
            *("--out", out, "--rehearse", EXAMPLES / "rehearsal.yaml"),
        )
    assert ended.code == 16
    assert len(ended.err.splitlines()) == 1
    assert says in ended.err
