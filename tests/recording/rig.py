"""Sessions with a plain program in the harness's place, and the command as a user runs it.

Everything else is the real thing: guard, forwarder, sidecar, attach, driver, a rehearsal of the
provider. The program is a shell text, which a job carries as its task.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from recorder.batch import recording
from recorder.batch.batch import image_id
from recorder.batch.recording import Job, Line, Setting
from recorder.engine.client import Engine
from recorder.plan.composition import IdentityMembers
from recorder.rehearsal.script import credential
from recorder.session.leftovers import DRIVER_LABEL, driver_identity
from recorder.session.sidecar import Credential, Upstream
from recorder.workspace.manifest import manifest_of

PROJECT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = PROJECT / "examples"
PROBE = "PROBE-EX-units"
DEAD_ENGINE = "unix:///nonexistent/docker.sock"
COMMAND_SECONDS = 100.0


def program_as_harness(monkeypatch: pytest.MonkeyPatch, *, believed: bool = True) -> None:
    """From here on a job's task is a shell text that runs where the harness would.

    ``believed``: its stream passes for the harness's, although the provider gave none of it.
    """

    def shell(task: str, **_: object) -> tuple[str, ...]:
        return ("/bin/sh", "-c", task)

    monkeypatch.setattr(recording, "command_line", shell)
    if believed:
        monkeypatch.setattr(recording, "require_agreement", lambda *_: None)


def own_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on what is made is another driver's than the rig's, and collected apart from it."""
    identity = driver_identity() + "-of-this-test"
    for module in ("recorder.batch.recording", "recorder.session.leftovers"):
        monkeypatch.setattr(f"{module}.driver_identity", lambda: identity)


def line_of(tree: Path) -> Line:
    """A line whose workspace is a directory of the test's own."""
    return Line(
        tier="regression",
        arm="present",
        members=IdentityMembers("sha256:l", "sha256:t", "sha256:s", "sha256:r", 0, "0"),
        tree=tree,
        manifest=manifest_of(tree),
        delta=(),
        servers=(),
        declared=frozenset(),
        has_mcp_configuration=False,
        max_turns=None,
    )


def setting_of(engine: Engine, upstream: Upstream) -> Setting:
    return Setting(
        session_image=image_id(engine, "session"),
        sidecar_image=image_id(engine, "proxy"),
        upstream=upstream,
        credential_of=lambda probe, session: Credential("api_key", credential(probe, session)),
        rehearsal=True,
        model="claude-sonnet-4-5",
        timeout=60.0,
        host_skills=frozenset({"a-skill-of-the-host"}),
    )


@dataclass(frozen=True)
class Rig:
    """An engine and a rehearsed provider behind it, for sessions that a test orders itself."""

    engine: Engine
    upstream: Upstream

    def setting(self, **changes: object) -> Setting:
        return replace(setting_of(self.engine, self.upstream), **changes)  # type: ignore[arg-type]

    def job(self, line: Line, name: str, program: str, directory: Path) -> Job:
        return Job(
            line=line,
            probe=PROBE,
            task=program,
            answers=("yes", "no"),
            session=name,
            directory=directory / name,
            uid=1000,
        )


@dataclass(frozen=True)
class Ran:
    """A command that ended."""

    code: int
    out: str
    err: str


def environment_of(changes: Mapping[str, str | None]) -> dict[str, str]:
    environment = {**os.environ, "ANTHROPIC_API_KEY": "", "COLUMNS": "200"}
    for name, value in changes.items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    return environment


def command_of(arguments: Sequence[str | Path]) -> list[str]:
    return [sys.executable, "-m", "recorder", *(str(argument) for argument in arguments)]


def recorder(
    *arguments: str | Path,
    stdin: bytes = b"",
    environment: Mapping[str, str | None] | None = None,
    directory: Path = PROJECT,
) -> Ran:
    """Run the command to its end. Whatever it was given, it never ends in a traceback."""
    ended = subprocess.run(
        command_of(arguments),
        input=stdin,
        capture_output=True,
        cwd=directory,
        env={**environment_of(environment or {}), "PYTHONPATH": str(PROJECT)},
        timeout=COMMAND_SECONDS,
        check=False,
    )
    ran = Ran(ended.returncode, ended.stdout.decode(), ended.stderr.decode())
    assert "Traceback" not in ran.err, ran.err
    assert "Exception ignored" not in ran.err, ran.err
    return ran


@contextmanager
def running(*arguments: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command while it runs, in a process of its own that a test may kill."""
    process = subprocess.Popen(
        command_of(arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=PROJECT,
        env=environment_of({}),
        # A test run in the background starts with interrupts ignored, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


def eventually(
    what: str, condition: Callable[[], object], seconds: float, interval: float = 0.05
) -> float:
    """Wait until a condition holds, and say how long that took; fail after ``seconds``."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"not within {seconds} s: {what}"
        time.sleep(interval)
    return time.monotonic() - began


def things_of(engine: Engine, driver_process: int) -> list[str]:
    """Every container, volume and network that a driver's label names, by kind and name."""
    mark = f":{driver_process}:"
    listed = (
        *(
            (f"container {found['Names'][0]} {found['State']}", found)
            for found in engine.containers(DRIVER_LABEL)
        ),
        *((f"volume {found['Name']}", found) for found in engine.volumes(DRIVER_LABEL)),
        *((f"network {found['Name']}", found) for found in engine.networks(DRIVER_LABEL)),
    )
    return [name for name, found in listed if mark in found["Labels"][DRIVER_LABEL]]


def running_of(engine: Engine, driver_process: int) -> list[str]:
    return [thing for thing in things_of(engine, driver_process) if thing.endswith(" running")]
