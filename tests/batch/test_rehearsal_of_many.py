"""A rehearsal of 120 sessions of the real harness, four at a time, as a user runs it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml

from recorder.engine.client import open_engine
from recorder.engine.connect import docker_host
from recorder.ledger.journal import read_state
from recorder.session.leftovers import DRIVER_LABEL, driver_lives
from tests.recording.rig import EXAMPLES, command_of, environment_of, recorder

pytestmark = [pytest.mark.engine, pytest.mark.slow]

REPETITIONS = 20
SESSIONS = 2 * 3 * REPETITIONS
PARALLEL = 4


def processor_times() -> tuple[int, int]:
    """Ticks in which the machine's processors worked, and all of them."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    idle = fields[3] + fields[4]
    return sum(fields) - idle, sum(fields)


def batch_of_many(directory: Path) -> Path:
    corpus = directory / "corpus"
    shutil.copytree(EXAMPLES / "corpus", corpus)
    declaration = corpus / ".headwater" / "probe.yml"
    declared = re.sub("repetitions: 2", f"repetitions: {REPETITIONS}", declaration.read_text())
    declared = re.sub("budget_cents: 1000", "budget_cents: 1000000", declared)
    declaration.write_text(declared)
    written = yaml.safe_load((EXAMPLES / "batch.yaml").read_text())
    written |= {
        "corpus": str(corpus),
        "rehearse": str(EXAMPLES / "rehearsal.yaml"),
        "parallel": PARALLEL,
    }
    for line in written["lines"]:
        line["repetitions"] = REPETITIONS
    path = directory / "batch.yaml"
    path.write_text(yaml.safe_dump(written))
    return path


@pytest.mark.timeout(1800)
def test_a_rehearsal_of_many_records_and_corroborates_every_session(tmp_path: Path) -> None:
    spec, out = batch_of_many(tmp_path), tmp_path / "out"
    before, began = processor_times(), time.monotonic()
    ended = subprocess.run(
        command_of(["batch", "run", spec, "--out", out]),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment_of({}),
        timeout=1500,
        check=False,
    )
    took, after = time.monotonic() - began, processor_times()
    assert ended.returncode == 0, ended.stderr[-2000:]
    state = read_state(out)
    assert state is not None
    assert state.totals().recorded == SESSIONS
    assert state.totals().attempts == SESSIONS
    spent: Counter[str] = Counter()
    for name in state.sessions:
        evidence = json.loads((out / "sessions" / name / "evidence.json").read_text())
        joined = evidence["corroboration"]
        assert joined["agrees"], (name, joined["findings"])
        assert joined["blocks"] > 0, name
        assert joined["corroborated"] + sum(joined["normalised"].values()) == joined["blocks"], name
        spent.update({part: seconds or 0.0 for part, seconds in evidence["seconds"].items()})
    engine = open_engine(docker_host())
    try:
        things = (
            *engine.containers(DRIVER_LABEL),
            *engine.volumes(DRIVER_LABEL),
            *engine.networks(DRIVER_LABEL),
        )
        left = [thing for thing in things if driver_lives(thing["Labels"][DRIVER_LABEL]) is False]
    finally:
        engine.close()
    assert left == []
    verified = recorder("verify", out)
    assert verified.code == 0, verified.err
    busy = (after[0] - before[0]) / (after[1] - before[1])
    parts = ", ".join(f"{part} {seconds / SESSIONS:.2f} s" for part, seconds in spent.items())
    print(
        f"\n{SESSIONS / took * 3600:.0f} sessions an hour, {PARALLEL} at a time on "
        f"{os.cpu_count()} processors, which were {busy:.0%} busy; a session: {parts}"
    )
