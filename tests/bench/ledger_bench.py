"""What a batch itself costs: 2,000 sessions that need no container, and a ledger of 20,000.

Ceilings: 3 ms a session over what the sessions themselves do, and 150 MB; 1.5 s from the command to
the first start of a batch of which 20,000 sessions have ended; 1 s for its status. Each in a
process of its own, so that memory is its own too.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from msgspec import structs

from recorder.batch.recording import Job, Recorded
from recorder.batch.status import status_of
from recorder.ledger.entries import (
    FileChange,
    Reported,
    SessionChange,
    SessionEnd,
    SessionStart,
    Tokens,
)
from recorder.ledger.journal import open_journal, read_state
from tests.batch.null_host import Batch, NullHost, NullSession, spec_of
from tests.recording.rig import EXAMPLES

SESSIONS = 2_000
ENDED = 20_000
SESSION_CEILING = 0.003
MEMORY_CEILING = 150 << 20
RESUME_CEILING = 1.5
STATUS_CEILING = 1.0
DIGEST = "sha256:" + "2" * 64
FILES = ("egress.jsonl", "evidence.json", "event.yaml", "raw.jsonl", "record.md", "started")


class ResumedError(Exception):
    """The first session of a resumed batch is about to be opened."""


@dataclass
class Timed(NullHost):
    """Knows how long its sessions took of a batch's time."""

    seconds: float = 0.0

    def open(self, job: Job) -> NullSession:
        began = time.perf_counter()
        opened = super().open(job)
        self.seconds += time.perf_counter() - began
        return TimedSession(opened.host, opened.job, opened.act)


class TimedSession(NullSession):
    def run(self, before_start: Callable[[], None], halt: threading.Event) -> Recorded:
        began = time.perf_counter()
        inside = 0.0

        def start() -> None:
            nonlocal inside
            at = time.perf_counter()
            before_start()
            inside = time.perf_counter() - at

        recorded = super().run(start, halt)
        # What the batch does just before the start is the batch's.
        self.host.seconds += time.perf_counter() - began - inside
        return recorded


@dataclass
class Stopping(NullHost):
    """Ends where the first session would be opened."""

    def open(self, job: Job) -> NullSession:
        raise ResumedError(job.session)


def fsync_seconds(directory: Path, count: int = 200) -> float:
    """What one costs on this disk, with whatever else writes to it."""
    with (directory / "synced").open("wb") as file:
        began = time.perf_counter()
        for _ in range(count):
            file.write(b"x" * 300)
            file.flush()
            os.fsync(file.fileno())
        return (time.perf_counter() - began) / count


def batch_of(directory: Path, sessions: int) -> Batch:
    """A batch of one probe, so many times."""
    corpus = directory / "corpus"
    shutil.copytree(EXAMPLES / "corpus", corpus)
    declaration = corpus / ".headwater" / "probe.yml"
    declared = declaration.read_text()
    declared = re.sub("repetitions: 2", f"repetitions: {sessions}", declared)
    declared = re.sub("budget_cents: 1000", "budget_cents: 100000000", declared)
    declaration.write_text(declared)
    spec = spec_of(corpus)
    line = structs.replace(
        spec.lines[0], exclude=("PROBE-EX-outside", "PROBE-EX-report"), repetitions=sessions
    )
    return Batch(corpus, directory / "out", structs.replace(spec, lines=(line,)))


def many_sessions(directory: Path) -> bool:
    """A batch of null sessions, one at a time, and what it took beside them."""
    batch = batch_of(directory, SESSIONS)
    host = Timed(batch.provider)
    began = time.perf_counter()
    assembled = 0.0

    def ended(_: object, done: int, total: int) -> None:
        nonlocal assembled
        if done == total:
            assembled = time.perf_counter()

    batch.run(host, ended=ended)
    over = time.perf_counter()
    each = (assembled - began - host.seconds) / SESSIONS
    sync = fsync_seconds(directory)
    last = (over - assembled) / SESSIONS
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(
        f"{SESSIONS} null sessions: {each * 1e3:.2f} ms each for the batch (ceiling "
        f"{SESSION_CEILING * 1e3:.0f} ms), {memory / (1 << 20):.0f} MB (ceiling "
        f"{MEMORY_CEILING >> 20} MB); assembled at {last * 1e3:.2f} ms a session; one fsync takes "
        f"{sync * 1e3:.2f} ms here now, and the batch makes 7 a session"
    )
    return each < SESSION_CEILING and memory < MEMORY_CEILING


def ended_ledger(batch: Batch) -> None:
    """Make every session but one a recorded one by the ledger."""
    names = sorted(f"L1-campaign-present-p1-r{number}" for number in range(1, ENDED + 1))
    with open_journal(batch.out) as journal:
        for name in names:
            (batch.out / "sessions" / name).mkdir(parents=True, exist_ok=True)
            journal.append(
                SessionStart(
                    session=name, attempt=1, why="first", slot=0, uid=1000, reserved=Decimal("0.5")
                ),
                SessionChange(
                    session=name,
                    attempt=1,
                    files=(FileChange(path="reports/summary.md", added=6, removed=0),),
                ),
                SessionEnd(
                    session=name,
                    attempt=1,
                    outcome="recorded",
                    code=0,
                    capped=False,
                    failure=None,
                    cost=Reported(Decimal("0.1")),
                    billing="api",
                    tokens=Tokens(input=1, output=2, cache_write=3, cache_read=4),
                    requests=6,
                    duration_ms=1000,
                    files=dict.fromkeys(FILES, DIGEST),
                ),
            )
            (batch.out / "sessions" / name).mkdir(parents=True, exist_ok=True)


def resumed(batch: Batch) -> float:
    began = time.perf_counter()
    try:
        batch.run(Stopping(batch.provider))
    except ResumedError:
        return time.perf_counter() - began
    raise AssertionError("nothing was left to run")


def many_ended(directory: Path) -> bool:
    batch = batch_of(directory, ENDED + 1)
    first = resumed(batch)
    ended_ledger(batch)
    again = resumed(batch)
    began = time.perf_counter()
    state = read_state(batch.out)
    assert state is not None
    status = status_of(state, state.last_ts / 1000)
    seconds = time.perf_counter() - began
    assert status.recorded == ENDED
    print(
        f"{ENDED} ended sessions: {again:.2f} s to the next start (ceiling {RESUME_CEILING} s; "
        f"{first:.2f} s with none ended), status {seconds:.2f} s (ceiling {STATUS_CEILING} s)"
    )
    return again < RESUME_CEILING and seconds < STATUS_CEILING


BENCHES = {"sessions": many_sessions, "ended": many_ended}


def main() -> int:
    if len(sys.argv) > 1:
        with tempfile.TemporaryDirectory(prefix="recorder-bench-", dir="/var/tmp") as directory:
            return 0 if BENCHES[sys.argv[1]](Path(directory)) else 1
    status = 0
    for name in BENCHES:
        ended = subprocess.run([sys.executable, __file__, name], check=False, env=os.environ)
        status = status or ended.returncode
    return status


if __name__ == "__main__":
    sys.exit(main())
