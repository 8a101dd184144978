"""Many sessions of the real harness in one driver: nothing of them is left behind."""

from __future__ import annotations

import gc
import os
import re
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from recorder.batch.batch import source_of
from recorder.batch.driving import Order, run_batch
from recorder.batch.spec import BatchSpec, LineSpec
from recorder.engine.client import Engine, open_engine
from recorder.engine.connect import docker_host
from recorder.session.leftovers import DRIVER_LABEL, driver_identity
from tests.recording.rig import EXAMPLES

pytestmark = pytest.mark.engine

SCRIPT = """
default:
  - content: [{tool_use: {name: Read, input: {file_path: "{workspace}/docs/overview.md"}}}]
  - content: [{text: "bytes"}]
"""


@dataclass(frozen=True)
class Held:
    """What this process, the engine and the temporary directory hold of a driver."""

    engine: tuple[str, ...]
    children: tuple[str, ...]
    threads: tuple[str, ...]
    descriptors: int
    directories: tuple[str, ...]


def children_of(process: int) -> tuple[str, ...]:
    found = []
    for task in Path(f"/proc/{process}/task").iterdir():
        found += (task / "children").read_text().split()
    return tuple(found)


def held(engine: Engine) -> Held:
    gc.collect()
    own = driver_identity()
    things = (*engine.containers(DRIVER_LABEL), *engine.volumes(DRIVER_LABEL))
    things = (*things, *engine.networks(DRIVER_LABEL))
    return Held(
        engine=tuple(
            sorted(
                str(thing.get("Name") or thing.get("Names"))
                for thing in things
                if thing["Labels"][DRIVER_LABEL] == own
            )
        ),
        children=children_of(os.getpid()),
        threads=tuple(sorted(thread.name for thread in threading.enumerate())),
        descriptors=len(os.listdir("/proc/self/fd")),
        directories=tuple(
            sorted(
                path.name
                for path in Path(tempfile.gettempdir()).glob("recorder-*")
                if own in path.name
            )
        ),
    )


def record_many(tmp_path: Path, sessions: int) -> float:
    """Seconds that a batch of so many sessions took, two at a time."""
    corpus = tmp_path / "corpus"
    shutil.copytree(EXAMPLES / "corpus", corpus)
    declaration = corpus / ".headwater" / "probe.yml"
    declared = declaration.read_text()
    declared = re.sub("repetitions: 2", f"repetitions: {sessions}", declared)
    declared = re.sub("budget_cents: 1000", "budget_cents: 1000000", declared)
    declaration.write_text(declared)
    script = tmp_path / "script.yaml"
    script.write_text(SCRIPT)
    spec = BatchSpec(
        corpus=str(corpus),
        model="claude-sonnet-4-5",
        lines=(
            LineSpec(
                tier="campaign",
                arm="absent",
                exclude=("PROBE-EX-outside", "PROBE-EX-report"),
                repetitions=sessions,
            ),
        ),
        parallel=2,
    )
    out = tmp_path / "out"
    began = time.monotonic()
    report = run_batch(
        spec,
        corpus,
        out,
        source_of(script, None),
        docker_host,
        not_enforced=lambda: (),
        host_skills=frozenset(),
        order=Order(stop=threading.Event()),
    )
    took = time.monotonic() - began
    assert report.failed == 0
    assert report.ran == sessions
    shutil.rmtree(out)
    return took


def soak(tmp_path: Path, sessions: int) -> None:
    engine = open_engine(docker_host())
    try:
        before = held(engine)
        took = record_many(tmp_path, sessions)
        print(f"{sessions} sessions: {took:.1f} s, {took / sessions:.2f} s each")
        after = held(engine)
    finally:
        engine.close()
    assert after.engine == before.engine
    assert after.children == before.children
    assert after.threads == before.threads
    assert after.directories == before.directories
    # An HTTP client of the engine's may still be pooled, and no more than it was.
    assert after.descriptors <= before.descriptors


@pytest.mark.timeout(240)
def test_40_sessions_leave_nothing_behind(tmp_path: Path) -> None:
    soak(tmp_path, 40)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_200_sessions_leave_nothing_behind(tmp_path: Path) -> None:
    soak(tmp_path, 200)
