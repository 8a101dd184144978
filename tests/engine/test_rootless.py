"""Our engine: started once, adopted when it answers, and only its own process tree is ended."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from recorder.engine import connect, rootless
from recorder.engine.rootless import Place
from recorder.refusal import ExitCode, Refusal


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Place:
    """A place of our engine's with nothing in it."""
    where = Place(
        user="nobody",
        uid=os.geteuid(),
        gid=os.getegid(),
        home=str(tmp_path),
        runtime=tmp_path / "run",
        data_root=tmp_path / "data" / "engine",
        log=tmp_path / "data" / "engine.log",
    )
    monkeypatch.setattr(rootless, "place", lambda: where)
    return where


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_nothing_runs_in_an_empty_place(elsewhere: Place) -> None:
    assert not rootless.status().running
    assert rootless.stop() is False


def test_an_engine_that_ends_at_once_is_3_with_its_own_words(
    elsewhere: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["sh", "-c", "echo error: no tap device >&2; exit 7"]
    monkeypatch.setattr(rootless, "_command", lambda _: command)
    with pytest.raises(Refusal, match=r"ended with 7.*no tap device") as refused:
        rootless.start()
    assert refused.value.code is ExitCode.MISSING
    assert str(elsewhere.log) in str(refused.value)
    assert not elsewhere.record.exists()


def test_an_engine_that_never_answers_is_ended_after_the_deadline(
    elsewhere: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid_file = elsewhere.log.parent / "pid"
    command = ["sh", "-c", f"sleep 60 & echo $! > {pid_file}; wait"]
    monkeypatch.setattr(rootless, "_command", lambda _: command)
    monkeypatch.setattr(rootless, "START_SECONDS", 0.5)
    with pytest.raises(Refusal, match="did not answer"):
        rootless.start()
    # Nothing of its tree is left: the sleeper was its child.
    child = Path("/proc", pid_file.read_text().strip())
    deadline = time.monotonic() + 10
    while child.exists() and "Z" not in (child / "stat").read_text().rpartition(")")[2][:3]:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_pid_that_was_reused_is_never_signalled(
    elsewhere: Place, stranger: subprocess.Popen[bytes]
) -> None:
    elsewhere.runtime.mkdir(parents=True)
    elsewhere.record.write_text(json.dumps({"pid": stranger.pid, "started": 1}))
    assert rootless.stop() is False
    assert stranger.poll() is None


def test_a_record_that_is_not_one_is_refused(elsewhere: Place) -> None:
    elsewhere.runtime.mkdir(parents=True)
    elsewhere.record.write_text("{")
    with pytest.raises(Refusal) as refused:
        rootless.stop()
    assert refused.value.code is ExitCode.CORRUPT


@pytest.mark.engine
def test_starting_adopts_an_engine_that_answers() -> None:
    if connect.user_choice() is not None:
        pytest.skip("the user names an engine: ours need not run")
    before = rootless.status()
    assert before.running
    started = rootless.start()
    assert not started.fresh
    assert started.status == before


@pytest.mark.engine
def test_the_engines_data_root_names_no_person(engine_client: docker.DockerClient) -> None:
    if connect.user_choice() is not None:
        pytest.skip("the user names an engine: its data root is theirs")
    facts = connect.engine_facts(engine_client)
    assert facts.rootless
    assert facts.seccomp
    assert not facts.data_root.startswith(("/home", "/root"))


def running_as(uid: int) -> list[str]:
    """What runs as ``uid``; the dead that wait for a parent to look are no processes of ours."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            status = (entry / "status").read_text()
            if f"\nUid:\t{uid}\t" in status and "\nState:\tZ" not in status:
                found.append(status.splitlines()[0])
    return found


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="makes and removes a user of its own")
def test_a_whole_life_as_an_ordinary_user(tmp_path: Path, project: Path) -> None:
    """Started, asked, stopped, and nothing of that user's runs afterwards."""
    name = "recorder-test"
    subprocess.run(["useradd", "--create-home", name], check=True)
    uid = int(subprocess.check_output(["id", "-u", name]))
    runtime = Path("/run/user", str(uid))
    try:
        runtime.mkdir(mode=0o700, parents=True)
        os.chown(runtime, uid, uid)
        script = (
            "from recorder.engine import rootless, connect\n"
            "started = rootless.start()\n"
            "assert started.fresh and started.status.running\n"
            "assert connect.engine_facts(connect.connect()).rootless\n"
            "assert rootless.stop()\n"
            "assert not rootless.status().running\n"
        )
        result = subprocess.run(
            [
                *("setpriv", "--reuid", name, "--regid", name, "--init-groups"),
                *("env", "-i", f"HOME=/home/{name}", f"USER={name}", f"XDG_RUNTIME_DIR={runtime}"),
                "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
                f"PYTHONPATH={project}:{project}/.venv/lib/python3.11/site-packages",
                *("PYTHONDONTWRITEBYTECODE=1", "/usr/bin/python3", "-c", script),
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
        )
        assert result.returncode == 0, result.stderr
        assert running_as(uid) == []
    finally:
        subprocess.run(["userdel", "--remove", name], capture_output=True, check=False)
        subprocess.run(["rm", "-rf", str(runtime)], check=False)
