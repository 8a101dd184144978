"""Whose a thing on an engine is, and what becomes of it when its driver fails or is gone."""

from __future__ import annotations

import fcntl
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import docker.errors
import pytest

from recorder.batch.recording import Job, Recorded
from recorder.batch.run import run_jobs
from recorder.durable import write_durable
from recorder.engine.client import Engine
from recorder.refusal import ExitCode, Refusal
from recorder.session import leftovers
from recorder.session.container import EGRESS_DIRECTORY
from recorder.session.leftovers import (
    BATCH_LABEL,
    DIRECTORY_LABEL,
    DRIVER_LABEL,
    WORK_PREFIX,
    collect_leftovers,
    driver_identity,
    driver_lives,
    nothing_left,
    work_directory,
)
from tests.recording.rig import Rig, line_of, program_as_harness
from tests.stream.streams import init, result


@pytest.fixture(scope="module")
def dead() -> str:
    """The identity of a driver that lived in this namespace and ended."""
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            "from recorder.session.leftovers import driver_identity; print(driver_identity())",
        ],
        capture_output=True,
        check=True,
    )
    return ended.stdout.decode().strip()


def elsewhere(identity: str, position: int) -> str:
    parts = identity.split(":")
    parts[position] = "12345678"
    return ":".join(parts)


def test_a_driver_is_known_by_its_boot_namespace_process_and_start(dead: str) -> None:
    own = driver_identity()
    assert driver_lives(own) is True
    assert driver_lives(dead) is False
    # Another boot or another host: its processes cannot be looked up from here.
    assert driver_lives(elsewhere(own, 0)) is None
    assert driver_lives(elsewhere(own, 1)) is None
    # The process number was given to another process since.
    assert driver_lives(elsewhere(own, 3)) is False


def test_a_dead_driver_s_temporary_directories_are_removed(
    dead: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own, other = driver_identity(), elsewhere(driver_identity(), 1)
    for identity in (dead, own, other):
        (tmp_path / f"{WORK_PREFIX}{identity}.abc").mkdir()
    (tmp_path / f"{WORK_PREFIX}{dead}.abc" / "arm").write_text("x")
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / f"{WORK_PREFIX}{dead}.link").symlink_to(target)
    with work_directory() as work:
        left = {path.name for path in tmp_path.iterdir()} - {work.name}
    assert left == {
        f"{WORK_PREFIX}{own}.abc",
        f"{WORK_PREFIX}{other}.abc",
        f"{WORK_PREFIX}{dead}.link",
        "target",
    }
    assert not work.exists()


@contextmanager
def volume(engine: Engine, name: str, identity: str) -> Iterator[str]:
    engine.create_volume(name, {DRIVER_LABEL: identity})
    try:
        yield name
    finally:
        engine.remove_volume(name)


def volumes(engine: Engine) -> set[str]:
    return {found["Name"] for found in engine.volumes(DRIVER_LABEL)}


@pytest.mark.engine
def test_only_what_a_dead_driver_left_is_collected(rig: Rig, dead: str, tmp_path: Path) -> None:
    engine = rig.engine
    foreign = elsewhere(driver_identity(), 0)
    image = rig.setting().session_image
    made = []
    for name, identity in (("dead", dead), ("foreign", foreign)):
        labels = {
            DRIVER_LABEL: identity,
            DIRECTORY_LABEL: str(tmp_path),
            "recorder.role": "session",
        }
        made.append(
            engine.create_container(f"recorder-left-{name}", {"Image": image, "Labels": labels})
        )
    try:
        with (
            volume(engine, "recorder-left-dead", dead),
            volume(engine, "recorder-left-own", driver_identity()),
            volume(engine, "recorder-left-foreign", foreign),
        ):
            found = {left.name for left in collect_leftovers(engine)}
            assert {name for name in found if "recorder-left" in name} == {"recorder-left-dead"}
            assert {"recorder-left-own", "recorder-left-foreign"} <= volumes(engine)
            assert "recorder-left-dead" not in volumes(engine)
        with pytest.raises(docker.errors.NotFound):
            engine.inspect(made[0])
        # It is another host's and was made just now, so its driver may be about to start it.
        assert engine.inspect(made[1])["State"]["Status"] == "created"
    finally:
        for container in made:
            engine.remove_container(container)
    # It never started, so it left its state and no outcome.
    assert (tmp_path / "leftover-session.json").is_file()


@pytest.mark.engine
def test_a_log_outlives_the_container_that_wrote_it(rig: Rig, dead: str, tmp_path: Path) -> None:
    """Whoever clears an engine of ended containers leaves its volumes."""
    engine, name = rig.engine, "recorder-left-log-egress"
    labels = {DRIVER_LABEL: dead, DIRECTORY_LABEL: str(tmp_path), "recorder.role": "sidecar"}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo("egress.jsonl")
        member.size = len(b"a log\n")
        archive.addfile(member, io.BytesIO(b"a log\n"))
    engine.create_volume(name, labels)
    mount = {"Type": "volume", "Source": name, "Target": EGRESS_DIRECTORY}
    writer = engine.create_container(
        "recorder-left-writer",
        {"Image": rig.setting().sidecar_image, "HostConfig": {"Mounts": [mount]}},
    )
    engine.put(writer, EGRESS_DIRECTORY, iter([packed.getvalue()]))
    engine.api.remove_container(writer)
    seen: list[bytes] = []
    collect_leftovers(engine, lambda: seen.append((tmp_path / "egress.jsonl").read_bytes()))
    assert seen == [b"a log\n"]
    assert name not in volumes(engine)
    assert not [each for each in engine.containers(DRIVER_LABEL) if "-log-" in each["Names"][0]]


@pytest.mark.engine
def test_what_bears_the_label_of_a_batch_that_is_held_is_left_whoever_made_it(
    rig: Rig, tmp_path: Path
) -> None:
    """A driver in another process namespace cannot be looked up; its lock was free."""
    engine, foreign = rig.engine, elsewhere(driver_identity(), 1)
    made = [
        engine.create_container(
            f"recorder-left-{batch}",
            {
                "Image": rig.setting().session_image,
                "Labels": {DRIVER_LABEL: foreign, BATCH_LABEL: batch},
            },
        )
        for batch in ("mine", "another")
    ]
    try:
        found = {left.name for left in collect_leftovers(engine, batch="mine")}
        assert {name for name in found if "recorder-left" in name} == {"recorder-left-mine"}
        assert engine.inspect(made[1])["State"]["Status"] == "created"
    finally:
        for container in made:
            engine.remove_container(container)


@pytest.mark.engine
def test_two_drivers_do_not_collect_at_once(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    collected = threading.Event()

    def collect() -> None:
        collect_leftovers(rig.engine)
        collected.set()

    own = tmp_path / f"recorder-{os.geteuid()}"
    own.mkdir(mode=0o700)
    with (own / "leftovers.lock").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        collecting = threading.Thread(target=collect)
        collecting.start()
        assert not collected.wait(0.5)
    assert collected.wait(30)
    collecting.join()


@pytest.mark.engine
def test_a_lock_that_is_never_let_go_is_named(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(leftovers, "LOCK_SECONDS", 0.1)
    own = tmp_path / f"recorder-{os.geteuid()}"
    own.mkdir(mode=0o700)
    with (own / "leftovers.lock").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(Refusal) as refused:
            collect_leftovers(rig.engine)
    assert refused.value.code == ExitCode.MISSING
    assert "another recorder has been collecting" in refused.value.reasons[0]


@pytest.mark.engine
def test_a_lock_directory_that_is_a_link_is_refused(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"recorder-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refusal) as refused:
        collect_leftovers(rig.engine)
    assert refused.value.code == ExitCode.USAGE
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_durable_file_is_never_written_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    for name in ("kept.json", "kept.json.part"):
        (tmp_path / name).symlink_to(target)
    write_durable(tmp_path / "kept.json", b"new")
    assert target.read_text() == "mine"
    assert not (tmp_path / "kept.json").is_symlink()
    assert (tmp_path / "kept.json").read_bytes() == b"new"
    assert {path.name for path in tmp_path.iterdir()} == {"target", "kept.json", "kept.json.part"}


@pytest.mark.engine
def test_evidence_is_kept_in_no_directory_but_an_own_one(
    rig: Rig, dead: str, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / "link").symlink_to(target)
    labels = {
        DRIVER_LABEL: dead,
        DIRECTORY_LABEL: str(tmp_path / "link"),
        "recorder.role": "session",
    }
    request = {"Image": rig.setting().session_image, "Labels": labels}
    container = rig.engine.create_container("recorder-left-link", request)
    try:
        found = {left.name: left.evidence for left in collect_leftovers(rig.engine)}
    finally:
        rig.engine.remove_container(container)
    assert found["recorder-left-link"] is None
    assert list(target.iterdir()) == []


@pytest.mark.parametrize(
    "process", ["\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT TWO}", "9" * 5000]
)
def test_a_label_that_holds_no_process_number_is_of_no_driver(process: str) -> None:
    parts = driver_identity().split(":")
    parts[2] = process
    assert driver_lives(":".join(parts)) is False


@pytest.mark.engine
def test_a_driver_that_fails_collects_its_own(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = driver_identity() + "-of-this-test"
    monkeypatch.setattr("recorder.session.leftovers.driver_identity", lambda: identity)

    def fail() -> None:
        rig.engine.create_volume("recorder-left-failing", {DRIVER_LABEL: identity})
        raise KeyError

    with pytest.raises(KeyError), nothing_left(rig.engine):
        fail()
    assert "recorder-left-failing" not in volumes(rig.engine)


@pytest.fixture
def jobs(rig: Rig, tmp_path: Path) -> tuple[Job, ...]:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "stream").write_bytes(init() + result())
    line = line_of(tree)
    return tuple(rig.job(line, f"left-{n}", "cat stream", tmp_path / "out") for n in range(6))


def of_sessions(engine: Engine) -> list[str]:
    found = [*engine.containers("recorder.session"), *engine.volumes("recorder.session")]
    return [
        found["Labels"]["recorder.session"]
        for found in found
        if found["Labels"]["recorder.session"].startswith("left-")
    ]


@pytest.mark.engine
def test_a_place_that_fails_ends_the_batch_and_leaves_nothing(
    rig: Rig, jobs: tuple[Job, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    program_as_harness(monkeypatch)
    stop = threading.Event()
    recorded: list[Recorded] = []

    def began(job: Job) -> None:
        if job.session == "left-0":
            raise OSError(28, "No space left on device")
        # Beside it, and not before it: one that ended earlier would rightly be followed by another.
        assert stop.wait(60)

    with pytest.raises(OSError, match="No space"):
        run_jobs(
            rig.engine.docker_host,
            jobs,
            rig.setting(),
            parallel=2,
            began=began,
            ended=recorded.append,
            stop=stop,
        )
    assert stop.is_set()
    assert of_sessions(rig.engine) == []
    # The session beside it came to its end, and no further one was started.
    assert [end.job.session for end in recorded] == ["left-1"]
    assert not (jobs[-1].directory).exists()


@pytest.mark.engine
def test_a_sidecar_that_cannot_be_made_leaves_no_volume(
    rig: Rig, jobs: tuple[Job, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    program_as_harness(monkeypatch)
    setting = replace(rig.setting(), sidecar_image="recorder-proxy:never-built")
    with pytest.raises(docker.errors.ImageNotFound):
        run_jobs(
            rig.engine.docker_host,
            jobs,
            setting,
            parallel=2,
            began=lambda _: None,
            ended=lambda _: None,
            stop=threading.Event(),
        )
    assert of_sessions(rig.engine) == []
