"""What starts and what stops a batch, against sessions that need no engine (sections O and Q)."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from proxy.egress import EgressLog
from recorder.batch.canary import accept_canary
from recorder.batch.driving import Report
from recorder.batch.recording import Job, Recorded
from recorder.batch.rounds import Waits
from recorder.batch.spec import Caps, LineSpec
from recorder.batch.status import status_of
from recorder.durable import write_durable
from recorder.ledger.entries import RunAbort, RunEnd
from recorder.ledger.journal import read_state
from recorder.ledger.state import State
from recorder.refusal import ExitCode, Interrupt, Refusal
from recorder.session.sidecar import Credential
from tests.batch.null_host import (
    PAID,
    POLICY,
    Act,
    Batch,
    NullHost,
    NullSession,
    _answered,
    _asked,
    recorded_of,
    spec_of,
)
from tests.recording.rig import EXAMPLES
from tests.stream.streams import init, line, result
from tests.stream.test_failures import LIMIT

RESET = 1796083200.0

OVERLOADED = line(
    type="assistant",
    message={"id": "x", "model": "<synthetic>", "content": []},
    is_api_error_message=True,
    error="server_error",
    api_error_status=529,
) + result("no", is_error=True, terminal_reason="api_error", api_error_status=529)


@dataclass(frozen=True)
class Failing(Act):
    """A session that ends on an error of the provider's, after as many answers of its."""

    code: int = ExitCode.HARNESS
    stream: bytes = LIMIT
    status: int = 429
    dollars: str | None = "0"
    requests: int = 0


@dataclass
class Host(NullHost):
    """A null host whose sessions may fail as the harness does; counts what runs at once."""

    running_now: int = 0
    most: int = 0
    gate: Callable[[Job], object] = lambda _: None
    counting: Any = field(default_factory=threading.Lock)

    def open(self, job: Job) -> Any:
        return Session(super().open(job))


class Session:
    def __init__(self, session: NullSession) -> None:
        self.session = session

    def run(self, before_start: Callable[[], None], halt: threading.Event) -> Recorded:
        host, job, act = self.session.host, self.session.job, self.session.act
        assert isinstance(host, Host)
        with host.counting:
            host.running_now += 1
            host.most = max(host.most, host.running_now)
        try:
            host.gate(job)
            if not isinstance(act, Failing):
                return self.session.run(before_start, halt)
            before_start()
            write_durable(job.directory / "raw.jsonl", init() + act.stream)
            write_durable(job.directory / "stderr.log", b"")
            write_durable(job.directory / "egress.jsonl", failing_log(job.session, act))
            self.session._spend()
            return recorded_of(job, act)
        finally:
            with host.counting:
                host.running_now -= 1

    def remove(self) -> None:
        self.session.remove()


def failing_log(session: str, act: Failing) -> bytes:
    """A sidecar's log of answers that gave a message, and of one that was an error."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "log"
        log = EgressLog(path, session, lambda: "2025-06-01T12:00:00.000Z")
        names = ("requests", "bytes", "input_tokens", "output_tokens", "dollars")
        opened = {"policy": POLICY, "mitmproxy": "12", "bounds": dict.fromkeys(names)}
        log.append("open", opened, durable=False)
        for number in range(1, act.requests + 2):
            log.append("decision", _asked(number), durable=False)
            answer = _answered(number)
            if number == act.requests + 1:
                error = {"status": act.status, "message": None, "usage": {}, "usage_start": {}}
                answer = {**answer, **error, "error": "rate_limit_error"}
            log.append("answer", answer, durable=False)
        used = {**dict.fromkeys(names, 0), "dollars": None}
        log.close({"used": used})
        return path.read_bytes()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLES / "corpus", tmp_path / "corpus")
    return tmp_path / "corpus"


@pytest.fixture
def batch(tmp_path: Path, corpus: Path) -> Batch:
    return Batch(corpus, tmp_path / "out", spec_of(corpus))


def names_of(batch: Batch) -> list[str]:
    state = state_of(batch)
    return [name for name, attempts in state.sessions.items() if attempts]


def state_of(batch: Batch) -> State:
    state = read_state(batch.out)
    assert state is not None
    return state


def host_of(batch: Batch, *acts: Act, **more: Any) -> Host:
    """The acts of the sessions in the order in which they start, the last for all others."""
    given = list(acts)

    def act(job: Job, attempt: int) -> Act:
        return given.pop(0) if len(given) > 1 else (given[0] if given else Act())

    return Host(batch.provider, act, **more)


def capped(batch: Batch, dollars: float, **changes: Any) -> Batch:
    spec = structs.replace(batch.spec, caps=Caps(batch_dollars=dollars), **changes)
    return replace(batch, spec=spec)


def declare(corpus: Path, old: str, new: str) -> None:
    path = corpus / ".headwater" / "probe.yml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def code_of(report: Report) -> int:
    return int(report.standing.code)


def test_a_bound_of_sessions_ends_with_15_and_the_same_command_goes_on_o19_o20(
    batch: Batch,
) -> None:
    host = host_of(batch)
    report = batch.run(host, max_sessions=2)
    assert code_of(report) == 15
    assert (
        "2 of 3 sessions are over, 1 remain: run the same command again"
        in (report.standing.reasons[0])
    )
    assert len(batch.effects) == 2
    stopped = state_of(batch).stopped
    assert isinstance(stopped, RunEnd)
    assert stopped.code == 15
    report = batch.run(host_of(batch), max_sessions=2)
    assert (code_of(report), report.ran) == (0, 1)
    assert sorted(batch.effects) == sorted(names_of(batch))
    assert len(set(batch.effects)) == 3


def test_a_failure_that_is_a_limit_stops_new_starts_and_is_recorded_o22(batch: Batch) -> None:
    report = batch.run(host_of(batch, Failing()))
    assert code_of(report) == 15
    assert report.standing.reasons[0].startswith("halted, usage-limit (session L1-")
    assert len(state_of(batch).sessions) == 1
    (halt,) = state_of(batch).halts
    assert (halt.rule, halt.until) == ("usage-limit", RESET * 1000)


def test_after_a_halt_the_session_that_met_it_runs_again_o23(batch: Batch) -> None:
    batch.run(host_of(batch, Failing()))
    report = batch.run(host_of(batch))
    assert (code_of(report), report.totals.recorded) == (0, 3)
    halted = [a for a in state_of(batch).sessions.values() if len(a) == 2]
    assert [attempts[1].start.why for attempts in halted] == ["unspent"]
    # An answer that was an error cost nothing, and each message once.
    assert sorted(set(batch.effects)) == sorted(names_of(batch))
    assert len(batch.effects) == 3


def test_a_limit_in_the_middle_of_a_session_has_spent_and_waits_for_a_person(batch: Batch) -> None:
    spent = Failing(requests=2, dollars="0.10")
    assert code_of(batch.run(host_of(batch, spent))) == 15
    report = batch.run(host_of(batch))
    assert (code_of(report), report.totals.recorded, report.totals.failed) == (17, 2, 1)
    report = batch.run(host_of(batch), retry_failed=True)
    assert (code_of(report), report.totals.attempts) == (0, 4)
    assert str(report.money.batch.usd) == "0.850000"


def test_a_session_s_own_failure_stops_nothing(batch: Batch) -> None:
    report = batch.run(host_of(batch, Act(code=10, requests=2), Act()))
    assert (code_of(report), report.totals.recorded, report.totals.failed) == (17, 2, 1)
    assert "--retry failed" in report.standing.reasons[0]
    assert state_of(batch).halts == []


def test_a_halt_and_a_failed_session_end_with_17_q15(batch: Batch) -> None:
    report = batch.run(host_of(batch, Act(code=10, requests=2), Failing()))
    assert code_of(report) == 17
    assert [halt.rule for halt in state_of(batch).halts] == ["usage-limit"]


def test_sessions_that_fail_one_after_another_stop_a_batch(batch: Batch) -> None:
    line_of = LineSpec(tier="campaign", arm="present", repetitions=4)
    declare(batch.corpus, "repetitions: 2", "repetitions: 4")
    many = replace(batch, spec=structs.replace(batch.spec, lines=(line_of,)))
    report = many.run(host_of(many, Act(code=13, requests=1)))
    assert report.totals.failed == 8
    (halt,) = state_of(many).halts
    assert (halt.rule, halt.session) == ("failures", None)


def test_sessions_that_a_limit_ended_are_no_failures_in_a_row(batch: Batch) -> None:
    acts = [*([Failing()] * 8), Act(code=13, requests=1), Act()]
    report = batch.run(host_of(batch, *acts), waits=Clock().waits())
    assert code_of(report) == 17
    assert (report.totals.recorded, report.totals.failed) == (2, 1)
    assert {halt.rule for halt in state_of(batch).halts} == {"usage-limit"}


def test_a_session_that_runs_again_after_a_wait_is_counted_once(batch: Batch) -> None:
    told: list[tuple[int, int]] = []
    batch.run(
        host_of(batch, Failing(), Act()),
        waits=Clock().waits(),
        ended=lambda _, done, total: told.append((done, total)),
    )
    assert told == [(1, 3), (1, 3), (2, 3), (3, 3)]


def test_a_cap_below_one_session_is_16_and_starts_nothing_o27(batch: Batch) -> None:
    report = capped(batch, 0.24).run()
    assert code_of(report) == 16
    assert report.ran == 0
    assert state_of(batch).runs == []
    assert batch.effects == []
    assert (
        "costs $0.25 as declared, and $0.24 are left of the batch's cap of $0.24"
        in (report.standing.reasons[0])
    )


def test_a_cap_that_is_reached_leaves_the_rest_with_16_q05_q06_o30(batch: Batch) -> None:
    """Two start, at 0.25 each of 0.60; each costs 0.40, which passes the cap, and no more do."""
    costly = Act(dollars="0.40")
    report = capped(batch, 0.65).run(host_of(batch, costly))
    assert (code_of(report), report.totals.recorded) == (16, 2)
    assert str(report.money.batch.usd) == "0.800000"
    again = capped(batch, 0.65).run()
    assert (code_of(again), again.ran) == (16, 0)
    assert len(state_of(batch).runs) == 1
    raised = capped(batch, 2.0).run()
    assert (code_of(raised), raised.ran) == (0, 1)


def test_equality_starts_q07(batch: Batch) -> None:
    report = capped(batch, 0.75).run(host_of(batch, Act(dollars="0.25")))
    assert (code_of(report), report.totals.recorded) == (0, 3)


def test_an_unknown_cost_counts_as_the_price_that_was_held(batch: Batch) -> None:
    silent = Act(dollars=None, code=13, log=False)
    report = capped(batch, 0.50).run(host_of(batch, silent))
    assert report.totals.unknown_calls == 2
    assert report.totals.remaining == 1
    assert code_of(report) == 17


def test_a_tier_s_ceiling_is_a_cap_over_all_its_lines(batch: Batch) -> None:
    declare(batch.corpus, "budget_cents: 1000", "budget_cents: 100")
    lines = tuple(
        LineSpec(tier="campaign", arm=arm, repetitions=1) for arm in ("present", "absent")
    )
    two = replace(batch, spec=structs.replace(batch.spec, lines=lines))
    report = two.run(host_of(two, Act(dollars="0.25")))
    assert (code_of(report), report.totals.recorded) == (16, 4)
    assert "the ceiling of the campaign tier of $1" in report.standing.reasons[0]


def test_places_share_one_budget(batch: Batch) -> None:
    wide = capped(batch, 0.50, parallel=3)
    gate = threading.Barrier(2, timeout=30)

    def wait(job: Job) -> None:
        gate.wait()

    host = host_of(wide, Act(dollars="0.25"), gate=wait)
    report = wide.run(host)
    assert (host.most, report.totals.recorded, code_of(report)) == (2, 2, 16)


def test_a_stop_file_at_the_start_invokes_nothing_q25(batch: Batch) -> None:
    batch.out.mkdir()
    (batch.out / "stop").touch()
    with pytest.raises(Refusal, match="stop: is there, so nothing starts") as refused:
        batch.run()
    assert refused.value.code == 15
    assert not (batch.out / "ledger.jsonl").exists()


def test_a_stop_file_lets_what_runs_come_to_its_end(batch: Batch, tmp_path: Path) -> None:
    stop = tmp_path / "elsewhere"
    host = host_of(batch, gate=lambda _: stop.touch())
    report = batch.run(host, stop_file=stop)
    assert (code_of(report), report.totals.recorded, report.ran) == (15, 1, 1)
    assert [(halt.rule, halt.session) for halt in state_of(batch).halts] == [("stop-file", None)]
    stop.unlink()
    assert code_of(batch.run(stop_file=stop)) == 0


class Clock:
    """Time that passes in pauses alone."""

    def __init__(self, now: float = RESET - 18_000) -> None:
        self.now = now
        self.pauses: list[float] = []
        self.told: list[tuple[str, float]] = []
        self.at_each: Callable[[], None] = lambda: None

    def waits(self) -> Waits:
        return Waits(
            told=lambda halt, seconds: self.told.append((halt.rule.name, seconds)),
            now=lambda: self.now,
            pause=self.pause,
        )

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        self.at_each()


def test_a_batch_that_waits_goes_on_when_the_limit_resets(batch: Batch) -> None:
    clock = Clock()
    spent = Failing(requests=2, dollars="0.10")
    report = batch.run(host_of(batch, Act(), spent, Act()), waits=clock.waits())
    assert (code_of(report), report.totals.recorded, report.totals.attempts) == (0, 3, 4)
    assert clock.told == [("usage-limit", 18_030.0)]
    assert max(clock.pauses) <= 60
    # One run of the ledger, and the attempt that was lost to the limit keeps its cost.
    assert len(state_of(batch).runs) == 1
    assert str(report.money.batch.usd) == "0.850000"
    whys = [a.start.why for a in state_of(batch).attempts()]
    assert whys.count("halted") == 1


def test_an_outage_is_asked_again_until_the_thirteenth_time_q11(batch: Batch) -> None:
    clock = Clock()
    failing = Failing(stream=OVERLOADED, status=529)
    report = batch.run(host_of(batch, failing), waits=clock.waits())
    assert code_of(report) == 15
    assert report.totals.attempts == 13
    assert [seconds for _, seconds in clock.told] == [300, 600, 1200, 2400, *[3600] * 8]


def test_a_stop_file_during_a_wait_is_seen_within_a_step_q26(batch: Batch) -> None:
    clock = Clock()
    clock.at_each = lambda: (batch.out / "stop").touch() if len(clock.pauses) == 3 else None
    report = batch.run(host_of(batch, Failing()), waits=clock.waits())
    assert code_of(report) == 15
    assert len(clock.pauses) == 3
    assert report.totals.attempts == 1


def test_a_halt_that_needs_a_person_is_not_waited_for(batch: Batch) -> None:
    clock = Clock()
    told = line(
        type="assistant",
        message={"id": "x", "model": "<synthetic>", "content": []},
        is_api_error_message=True,
        error="billing_error",
    ) + result("no", is_error=True, terminal_reason="api_error", api_error_status=400)
    report = batch.run(host_of(batch, Failing(stream=told, status=400)), waits=clock.waits())
    assert (code_of(report), clock.pauses) == (15, [])
    assert "halted, credit" in report.standing.reasons[0]


def test_a_credential_that_expires_is_waited_for_and_read_again_q16(batch: Batch) -> None:
    import time

    clock = Clock()
    now = time.time()
    lasting = Credential("bearer", "x", "file", expires_at=now + 1e6)
    short = Credential("bearer", "x", "file", expires_at=now + 60)

    def renew() -> Credential:
        return lasting if len(clock.pauses) >= 25 else short

    source = replace(PAID, credential=short, renew=renew)
    report = batch.run(host_of(batch), source, waits=clock.waits())
    assert (code_of(report), report.totals.recorded) == (0, 3)
    assert [name for name, _ in clock.told] == ["expiry"] * 3
    assert len(clock.pauses) == 25
    halted = batch.run(host_of(batch), replace(PAID, credential=short))
    assert code_of(halted) == 0


def test_without_waiting_a_credential_that_expires_halts(batch: Batch) -> None:
    source = replace(PAID, credential=Credential("bearer", "x", "file", expires_at=1.0))
    report = batch.run(host_of(batch), source)
    assert (code_of(report), report.totals.attempts) == (15, 0)
    assert "halted, expiry" in report.standing.reasons[0]


def test_a_canary_runs_alone_and_waits_for_a_person_q08_q37_q38_q39(batch: Batch) -> None:
    wide = replace(batch, spec=structs.replace(batch.spec, parallel=3))
    host = host_of(wide)
    counted: list[tuple[int, int]] = []
    report = wide.run(host, canary=2, ended=lambda _, over, of: counted.append((over, of)))
    assert counted == [(1, 3), (2, 3)]
    assert (code_of(report), report.ran, host.most) == (15, 2, 1)
    assert f"`recorder batch accept {batch.out}`" in report.standing.reasons[0]
    first = names_of(wide)
    assert first == [slot.partition("\n")[0] for slot in order_of(wide)[:2]]
    # The same command, and one without the option, start nothing before somebody accepts.
    for more in ({"canary": 2}, {}):
        again = wide.run(host_of(wide), **more)
        assert (code_of(again), again.ran) == (15, 0)
    assert accept_canary(batch.out, "looks right") == tuple(first)
    report = wide.run(host_of(wide))
    assert (code_of(report), report.ran) == (0, 1)
    with pytest.raises(Refusal, match="accepted already"):
        accept_canary(batch.out)


def order_of(batch: Batch) -> list[str]:
    import json

    order = json.loads((batch.out / "batch.json").read_bytes())["order"]
    assert isinstance(order, list)
    return order


@pytest.mark.parametrize("given", [{"canary": 1}, {}])
def test_a_canary_that_is_asked_for_after_its_sessions_ran_can_be_accepted(
    batch: Batch, given: dict[str, int]
) -> None:
    batch.run(host_of(batch), max_sessions=2)
    if not given:
        batch = replace(batch, spec=structs.replace(batch.spec, canary=1))
    for _ in range(2):
        report = batch.run(host_of(batch), **given)
        assert (code_of(report), report.ran) == (15, 0)
        assert "batch accept" in report.standing.reasons[0]
    assert len(accept_canary(batch.out)) == 1
    assert code_of(batch.run(host_of(batch), **given)) == 0


def test_a_canary_that_did_not_end_or_failed_is_not_accepted_q36(batch: Batch) -> None:
    with pytest.raises(Refusal, match="holds no ledger") as refused:
        accept_canary(batch.out)
    assert refused.value.code == 2
    batch.run(host_of(batch, Act(code=13, requests=1), Act()), canary=2, max_sessions=1)
    with pytest.raises(Refusal, match="did not end yet") as refused:
        accept_canary(batch.out)
    assert refused.value.code == 15
    report = batch.run(host_of(batch), canary=2)
    assert (code_of(report), report.ran) == (17, 1)
    with pytest.raises(Refusal, match="of the canary failed") as refused:
        accept_canary(batch.out)
    assert refused.value.code == 17
    assert len(accept_canary(batch.out, failed=True)) == 2
    assert code_of(batch.run(retry_failed=True)) == 0


def test_a_batch_without_a_canary_has_nothing_to_accept(batch: Batch) -> None:
    batch.run()
    with pytest.raises(Refusal, match="has no canary"):
        accept_canary(batch.out)


def test_a_count_that_only_the_first_line_has_is_every_line_s_o13(batch: Batch) -> None:
    lines = (
        LineSpec(tier="campaign", arm="present", repetitions=1),
        LineSpec(tier="campaign", arm="absent", as_first=True),
        LineSpec(tier="campaign", arm="absent"),
    )
    spec = structs.replace(batch.spec, lines=lines)
    replace(batch, spec=spec).run(max_sessions=1)
    counts = [name.rpartition("-r")[2] for name in order_of(batch)]
    by_line = [name.partition("-")[0] for name in order_of(batch)]
    assert [by_line.count(f"L{n}") for n in (1, 2, 3)] == [3, 3, 6]
    assert set(counts) == {"1", "2"}


def test_one_signal_lets_what_runs_end_and_starts_nothing_more(batch: Batch) -> None:
    import os
    import signal

    def interrupt(job: Job) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    report = batch.run(host_of(batch, gate=interrupt), gently=True)
    assert (code_of(report), report.totals.recorded, report.ran) == (15, 1, 1)
    assert signal.getsignal(signal.SIGINT) is before
    assert isinstance(state_of(batch).stopped, RunEnd)
    assert [halt.rule for halt in state_of(batch).halts] == ["SIGINT"]
    assert code_of(batch.run()) == 0
    assert state_of(batch).halts == []


def test_a_session_that_breaks_the_driver_is_no_signal(batch: Batch) -> None:
    def gate(_: Job) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        batch.run(host_of(batch, gate=gate), gently=True)
    assert state_of(batch).halts == []


def test_a_halt_that_passed_is_none_any_more(batch: Batch) -> None:
    batch.run(host_of(batch, Failing(), Act()), waits=Clock().waits())
    status = status_of(state_of(batch), state_of(batch).last_ts / 1000)
    assert (status.phase, status.until, status.halts) == ("ended", None, ("usage-limit",))


def test_a_halt_that_passed_is_none_while_the_rest_is_left(batch: Batch) -> None:
    batch.run(host_of(batch, Failing(), Act()), waits=Clock().waits(), max_sessions=2)
    status = status_of(state_of(batch), state_of(batch).last_ts / 1000)
    assert (status.phase, status.code) == ("ended", 15)


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_a_second_signal_kills_and_is_recorded(batch: Batch, number: str) -> None:
    import os
    import signal

    waiting = threading.Event()

    def interrupt(job: Job) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        stop.wait(10)
        os.kill(os.getpid(), getattr(signal, number))
        waiting.wait(0.2)

    stop = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.getsignal(each) for each in numbers]
    try:
        with pytest.raises(Interrupt) as raised:
            batch.run(host_of(batch, gate=interrupt), gently=True, stop=stop)
    finally:
        for each, handler in zip(numbers, handlers, strict=True):
            signal.signal(each, handler)
    assert raised.value.number == getattr(signal, number)
    stopped = state_of(batch).stopped
    assert isinstance(stopped, RunAbort)
    assert stopped.signal == number
