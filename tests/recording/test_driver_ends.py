"""A driver that is killed, told to end, or out of time: nothing runs on, and nothing is lost."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.egress import read
from recorder.engine.client import Engine, open_engine
from recorder.engine.connect import docker_host
from tests.recording.rig import (
    EXAMPLES,
    PROBE,
    eventually,
    recorder,
    running,
    running_of,
    things_of,
)

pytestmark = pytest.mark.engine

# The first answer makes a call, so that there is something to keep; the second never comes.
STALLING = """
default:
  - content:
      - tool_use: {name: Bash, input: {command: "echo begun", description: Begin}}
  - failures: [{stall: 600, times: always}]
    content: [{text: never}]
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    opened = open_engine(docker_host())
    yield opened
    opened.close()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "stalling.yaml"
    path.write_text(STALLING)
    return path


def record_arguments(out: Path, script: Path, session: str = "one") -> tuple[str | Path, ...]:
    return (
        *("record", "--corpus", EXAMPLES / "corpus", "--probe", PROBE, "--session", session),
        *("--out", out, "--rehearse", script),
    )


def wait_for_a_call(directory: Path, process: subprocess.Popen[bytes]) -> None:
    """Until the session's first call came back, so that its second answer is awaited."""
    raw = directory / "raw.jsonl"

    def called() -> bool:
        assert process.poll() is None, "the driver ended by itself"
        return raw.exists() and b"begun" in raw.read_bytes()

    eventually("the session's first call came back", called, 40)


def test_a_killed_driver_ends_everything_and_the_next_one_keeps_its_evidence(
    engine: Engine, script: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    directory = out / "sessions" / "one"
    with running(*record_arguments(out, script)) as process:
        wait_for_a_call(directory, process)
        assert len(running_of(engine, process.pid)) == 3
        process.kill()
        process.wait()
        took = eventually("every container ended", lambda: not running_of(engine, process.pid), 10)
    assert took < 10

    # It refuses the session's name, before any engine call; another name collects what is left.
    refused = recorder(*record_arguments(out, script))
    assert refused.code == 2
    assert "holds a session already" in refused.err
    good = recorder(*record_arguments(out, EXAMPLES / "rehearsal.yaml", "two"))
    assert good.code == 0, good.err
    assert things_of(engine, process.pid) == []
    log = read((directory / "egress.jsonl").read_bytes().splitlines(keepends=True))
    assert log.faults == ()
    assert any(line["decision"] == "allowed" for line in log.decisions)
    assert json.loads((directory / "outcome.json").read_bytes())["stage"] == "lifeline"
    for role in ("session", "sidecar"):
        state = json.loads((directory / f"leftover-{role}.json").read_bytes())
        assert state["Status"] == "exited"
    assert b"begun" in (directory / "raw.jsonl").read_bytes()
    assert not (directory / "evidence.json").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_a_driver_told_to_end_removes_everything_and_keeps_the_evidence(
    number: signal.Signals, engine: Engine, script: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    directory = out / "sessions" / "one"
    with running(*record_arguments(out, script)) as process:
        wait_for_a_call(directory, process)
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
        assert process.returncode == 128 + number
    lines = said.decode().splitlines()
    assert len(lines) == 1
    assert f"interrupted by {number.name}" in lines[0]
    assert things_of(engine, process.pid) == []
    log = read((directory / "egress.jsonl").read_bytes().splitlines(keepends=True))
    assert log.faults == ()
    assert b'"subtype":"init"' in (directory / "raw.jsonl").read_bytes()
    assert not (directory / "record.md").exists()


def test_the_deadline_kills_within_a_second_and_keeps_what_came(
    engine: Engine, script: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    ended = recorder(*record_arguments(out, script), "--timeout", "3")
    directory = out / "sessions" / "one"
    assert ended.code == 10
    assert ended.err == (
        "recorder: session one: killed at its deadline of 3 s; see raw.jsonl for how far it came, "
        "or give it more with --timeout\n"
    )
    evidence = json.loads((directory / "evidence.json").read_bytes())
    assert evidence["ended"] == "deadline"
    assert evidence["refusal"]["code"] == 10
    assert 3 <= evidence["seconds"]["session"] < 4
    raw = (directory / "raw.jsonl").read_bytes()
    assert b'"subtype":"init"' in raw
    assert b"begun" in raw
