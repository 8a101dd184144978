"""What becomes of a batch that is run again, by what its ledger and its egress logs say."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from recorder.batch.assembling import assemble_batch
from recorder.batch.assembly import LineStanding, assemble
from recorder.batch.recording import Job, Recorded
from recorder.ledger.entries import Estimated, Reported, RunEnd
from recorder.ledger.journal import read_state
from recorder.ledger.state import State
from recorder.refusal import Refusal
from tests.batch.null_host import (
    Act,
    Batch,
    DriverKilledError,
    NullHost,
    NullSession,
    as_usual,
    spec_of,
)
from tests.recording.rig import EXAMPLES

FIRST = "L1-campaign-present-p1-r1"
Acts = Callable[[object, int], Act]


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    shutil.copytree(EXAMPLES / "corpus", tmp_path / "corpus")
    corpus = tmp_path / "corpus"
    return Batch(corpus, tmp_path / "out", spec_of(corpus))


def state_of(batch: Batch) -> State:
    state = read_state(batch.out)
    assert state is not None
    return state


def only(session: str, first: Act, later: Act | None = None) -> Acts:
    """One session acts so in its first attempt of a host; every other is as usual."""

    def acts(job: object, attempt: int) -> Act:
        if getattr(job, "session", "") != session:
            return Act()
        return first if attempt == 1 else later or Act()

    return acts


def killed(batch: Batch, act: Act) -> NullHost:
    """Run until the driver is killed at one session; the host then holds what it left."""
    host = batch.host(only(FIRST, act))
    with pytest.raises(DriverKilledError):
        batch.run(host)
    return NullHost(batch.provider, dead=host.dead)


def test_a_batch_that_is_whole_writes_nothing_more(batch: Batch) -> None:
    report = batch.run()
    assert report.totals.recorded == 3
    before = (batch.out / "ledger.jsonl").read_bytes()
    again = batch.run()
    assert again.ran == 0
    assert (batch.out / "ledger.jsonl").read_bytes() == before
    assert len(batch.effects) == 3


@pytest.mark.parametrize("dies", ["created", "started"])
def test_a_session_that_reached_no_provider_runs_again_by_itself(batch: Batch, dies: str) -> None:
    host = killed(batch, Act(requests=0, dies=dies))
    report = batch.run(host)
    assert report.totals.recorded == 3
    assert batch.effects.count(FIRST) == 1
    first, second = state_of(batch).sessions[FIRST]
    assert first.egress is not None
    assert first.egress.requests == 0
    assert second.start.why == "unspent"
    assert report.totals.unknown_calls == 0
    assert (batch.out / "sessions" / f"{FIRST}.attempt-1").is_dir()


@pytest.mark.parametrize("dies", ["spent", "logged", "ended"])
def test_a_session_that_may_have_spent_waits_for_a_decision_o29(batch: Batch, dies: str) -> None:
    host = killed(batch, Act(requests=2, dies=dies))
    spent = batch.effects
    for again in (host, None, None):
        with pytest.raises(Refusal, match=f"{FIRST}: started without an end") as refused:
            batch.run(again)
        assert refused.value.code == 18
        assert "recorder batch reconcile" in str(refused.value)
    assert batch.effects == spent
    (attempt,) = state_of(batch).sessions[FIRST]
    assert attempt.egress is not None
    assert attempt.egress.requests == 2
    assert isinstance(attempt.cost, Estimated)
    assert state_of(batch).totals().uncertain == 1


def test_a_log_that_is_gone_decides_nothing(batch: Batch) -> None:
    host = killed(batch, Act(requests=1, dies="spent", log=False))
    with pytest.raises(Refusal) as refused:
        batch.run(host)
    assert refused.value.code == 18
    (attempt,) = state_of(batch).sessions[FIRST]
    assert attempt.egress is not None
    assert (attempt.egress.sha256, attempt.egress.requests) == (None, None)
    totals = state_of(batch).totals()
    assert (totals.unknown_calls, totals.unmeasured_calls) == (1, 1)


def test_what_a_log_says_is_in_the_ledger_before_anything_is_cleaned_up(batch: Batch) -> None:
    class Watching(NullHost):
        def collect(self, kept: Callable[[], None], batch: str) -> None:
            def watched() -> None:
                kept()
                (attempt,) = state_of(this).sessions[FIRST]
                assert attempt.egress is not None
                assert self.dead

            super().collect(watched, batch)

    this = batch
    host = killed(batch, Act(requests=2, dies="spent"))
    with pytest.raises(Refusal):
        batch.run(Watching(batch.provider, dead=host.dead))
    assert host.dead == []


def test_a_failed_session_that_spent_runs_again_only_when_told_o33_o34(batch: Batch) -> None:
    report = batch.run(batch.host(only(FIRST, Act(requests=2, code=10, dollars="0.40"))))
    assert (report.totals.failed, report.totals.recorded) == (1, 2)
    stopped = state_of(batch).stopped
    assert isinstance(stopped, RunEnd)
    assert (stopped.code, stopped.totals) == (17, report.totals)
    assert batch.run().ran == 0
    again = batch.run(retry_failed=True)
    assert (again.ran, again.totals.failed, again.totals.recorded) == (1, 0, 3)
    first, second = state_of(batch).sessions[FIRST]
    assert isinstance(first.cost, Reported)
    assert str(first.cost.usd) == "0.400000"
    assert second.start.why == "retry"
    # The earlier attempt's cost is kept beside those of the three that recorded.
    assert str(again.totals.usd) == "1.150000"


def test_a_failed_session_that_reached_no_provider_runs_again_by_itself(batch: Batch) -> None:
    batch.run(batch.host(only(FIRST, Act(requests=0, code=12, dollars=None))))
    report = batch.run()
    assert (report.ran, report.totals.recorded) == (1, 3)
    assert state_of(batch).sessions[FIRST][1].start.why == "unspent"


def test_a_session_stopped_by_the_turn_cap_has_recorded_o32(batch: Batch) -> None:
    report = batch.run(batch.host(only(FIRST, Act(capped=True))))
    assert report.totals.recorded == 3
    end = state_of(batch).sessions[FIRST][0].end
    assert end is not None
    assert (end.capped, end.code) == (True, 0)
    assert batch.run().ran == 0


def test_a_count_of_repetitions_that_moved_is_refused_o44(batch: Batch) -> None:
    batch.run()
    line = batch.spec.lines[0]
    spec = structs.replace(batch.spec, lines=(structs.replace(line, repetitions=2),))
    with pytest.raises(Refusal, match=r"repetitions of line 1 .* moved") as refused:
        Batch(batch.corpus, batch.out, spec).run()
    assert refused.value.code == 4


def test_a_batch_without_its_ledger_is_refused(batch: Batch) -> None:
    batch.run()
    (batch.out / "ledger.jsonl").unlink()
    with pytest.raises(Refusal, match=r"holds batch.json and no ledger.jsonl") as refused:
        batch.run()
    assert refused.value.code == 19


class Meddled(NullHost):
    """Something happens to the batch's directory while the first session is opened."""

    def __init__(self, batch: Batch, meddle: Callable[[], None]) -> None:
        super().__init__(batch.provider)
        self._meddle: Callable[[], None] | None = meddle

    def open(self, job: Job) -> NullSession:
        opened = super().open(job)
        meddle, self._meddle = self._meddle, None
        if meddle is not None:
            meddle()
        return opened


def test_a_lock_file_that_is_removed_lets_no_second_driver_in(batch: Batch) -> None:
    refused: list[Refusal] = []

    def meddle() -> None:
        (batch.out / "batch.lock").unlink()
        with pytest.raises(Refusal) as second:
            batch.run()
        refused.append(second.value)

    assert batch.run(Meddled(batch, meddle)).totals.recorded == 3
    assert [refusal.code for refusal in refused] == [20]
    assert len(state_of(batch).runs) == 1
    assert len(batch.effects) == 3


@pytest.mark.parametrize("name", ["", "ledger.jsonl"])
def test_what_is_moved_under_a_driver_starts_no_session(batch: Batch, name: str) -> None:
    moved = batch.out.with_name("moved")

    def meddle() -> None:
        (batch.out / name).rename(moved)
        if name:
            shutil.copy(moved, batch.out / name)

    with pytest.raises(Refusal, match="was moved or replaced") as refused:
        batch.run(Meddled(batch, meddle))
    assert refused.value.code == 19
    assert batch.effects == []


@pytest.mark.parametrize("name", ["batch.json", "plans", "arms", "assembled", "evidence"])
def test_a_link_in_the_place_of_what_a_driver_wrote_is_refused_unspent(
    batch: Batch, name: str
) -> None:
    batch.run(max_sessions=1)
    (batch.out / "evidence").mkdir(exist_ok=True)
    (batch.out / name).rename(batch.out / "elsewhere")
    (batch.out / name).symlink_to("elsewhere")
    with pytest.raises(Refusal, match=f"{name}: is a link") as refused:
        batch.run()
    assert refused.value.code == 19
    assert len(batch.effects) == 1


def test_a_recorded_session_that_is_gone_is_refused_before_more_is_spent(batch: Batch) -> None:
    batch.run(max_sessions=1)
    (name,) = state_of(batch).sessions
    shutil.rmtree(batch.out / "sessions" / name)
    with pytest.raises(Refusal, match=f"{name}: is missing") as refused:
        batch.run()
    assert refused.value.code == 19
    assert batch.effects == [name]


def test_a_failed_session_that_is_gone_can_run_again(batch: Batch) -> None:
    batch.run(batch.host(only(FIRST, Act(code=13))))
    shutil.rmtree(batch.out / "sessions" / FIRST)
    with pytest.raises(Refusal, match=f"{FIRST}: is missing"):
        batch.run()
    assert batch.run(retry_failed=True).totals.recorded == 3


def test_the_next_attempt_begins_with_nothing_of_the_one_before_o16(batch: Batch) -> None:
    host = killed(batch, Act(requests=0, dies="logged"))
    directory = batch.out / "sessions" / FIRST
    (directory / "leftover-session.json").write_text("{}")
    (directory / "config").mkdir()
    (directory / "config" / "settings.json").write_text("{}")
    report = batch.run(host)
    assert report.totals.recorded == 3
    aside = directory.with_name(f"{FIRST}.attempt-1")
    assert (aside / "config" / "settings.json").is_file()
    assert not (directory / "config").exists()
    end = state_of(batch).sessions[FIRST][1].end
    assert end is not None
    names = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    assert set(end.files) == names


def test_each_end_of_a_batch_has_its_own_code_o36_o45(batch: Batch, tmp_path: Path) -> None:
    def run(name: str, *, acts: Acts = as_usual, **changes: object) -> int:
        own = Batch(batch.corpus, tmp_path / name, batch.spec)
        own.run(own.host(acts), **changes)
        state = state_of(own)
        assert isinstance(state.stopped, RunEnd)
        return state.stopped.code

    assert run("done") == 0
    assert run("left", max_sessions=2) == 15
    assert run("failed", acts=only(FIRST, Act(code=10))) == 17


def test_sessions_of_another_identity_are_no_line_o37(batch: Batch) -> None:
    batch.run()
    kept = [each for _, each in assemble_batch(batch.out).rows if each is not None]
    other = structs.replace(kept[0].identity, model="another")
    with pytest.raises(Refusal, match=rf"{kept[1].directory}.*: model is ") as refused:
        assemble(LineStanding("L1-a-b", 3, 3), [replace(kept[0], identity=other), *kept[1:]])
    assert refused.value.code == 19


def test_a_heartbeat_says_that_the_driver_lives(batch: Batch) -> None:
    beaten = threading.Event()

    class Slow(NullHost):
        def open(self, job: Job) -> NullSession:
            session = super().open(job)
            run = session.run

            def until_beaten(before: Callable[[], None], halt: threading.Event) -> Recorded:
                while not any(b'"heartbeat"' in line for line in ledger.read_bytes().splitlines()):
                    assert not beaten.wait(0.01)
                return run(before, halt)

            session.run = until_beaten
            return session

    ledger = batch.out / "ledger.jsonl"
    batch.run(Slow(batch.provider), heartbeat=0.02)
    lines = [json.loads(line) for line in ledger.read_bytes().splitlines()]
    beats = [line["running"] for line in lines if line["kind"] == "heartbeat"]
    assert 1 in beats


def test_a_line_that_cannot_be_written_stops_the_batch(
    batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when the second session ends: nothing more starts."""
    real = os.pwrite

    def full(descriptor: int, data: bytes, offset: int) -> int:
        if b'"session:end"' in bytes(data) and len(ended) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data, offset)

    ended: list[str] = []
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left") as failed:
        batch.run(ended=lambda recorded, *_: ended.append(recorded.job.session))
    assert failed.value.errno == errno.ENOSPC
    assert len(batch.effects) == 2
    monkeypatch.undo()
    with pytest.raises(Refusal) as refused:
        batch.run()
    assert refused.value.code == 18
    assert len(batch.effects) == 2
