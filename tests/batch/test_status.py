"""How a batch stands, from its ledger alone."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest
from msgspec import structs

from recorder.batch.status import SILENT_SECONDS, duration, status_of
from recorder.ledger.entries import (
    BatchAccept,
    Estimated,
    Heartbeat,
    Line,
    RunAbort,
    RunEnd,
    RunHalt,
    Unknown,
)
from recorder.ledger.state import State
from tests.batch.ledgers import end, run_start, start, state_of

NAMES = tuple(f"L1-campaign-present-p1-r{number}" for number in range(1, 7))


def halt(session: str | None = None, until: int | None = None) -> RunHalt:
    return RunHalt(rule="usage-limit", session=session, until=until)


def run_end(code: int) -> RunEnd:
    return RunEnd(code=code, totals=State().totals(6))


def test_before_anything_ran() -> None:
    status = status_of(State(), 0.0)
    assert status.phase == "planned"
    assert (status.per_hour, status.seconds_left) == (None, None)


def test_a_running_batch_is_told_with_money_rate_and_time() -> None:
    # A line a minute: started at minute 1, one session ended at 3, the next at 5.
    state = state_of(
        run_start(6, batch="3.00"),
        start(NAMES[0]),
        end(NAMES[0]),
        start(NAMES[1]),
        end(NAMES[1], code=10, failure="429", cost=Estimated(Decimal("0.10"), ("m",))),
        start(NAMES[2]),
        began=0,
        every=60_000,
    )
    status = status_of(state, 7 * 60)
    assert status.phase == "running"
    assert (status.recorded, status.failed, status.uncertain, status.remaining) == (1, 1, 0, 4)
    assert [(r.session, r.seconds) for r in status.running] == [(NAMES[2], 60.0)]
    assert status.per_hour == pytest.approx(20.0)
    assert status.seconds_left == pytest.approx(4 * 180)
    assert list(status.said()) == [
        "running: 2 of 6 sessions over, 1 recorded, 1 failed, 1 running",
        "money: $0.35 of $3.00, $0.50 held for what runs, $0.10 by the price table",
        "time: 20 sessions an hour, 12 min left",
        f"running: {NAMES[2]} for 60 s",
        f"failed: {NAMES[1]} with exit 10 (429)",
    ]


def test_a_driver_that_was_killed_is_silent_and_what_it_ran_is_uncertain() -> None:
    lines: list[Line] = [run_start(6), start(NAMES[0]), Heartbeat(running=1)]
    state = state_of(*lines, began=0)
    assert status_of(state, 3 + SILENT_SECONDS).phase == "running"
    status = status_of(state, 3.1 + SILENT_SECONDS)
    assert status.phase == "silent"
    assert (status.uncertain, status.running) == (1, ())
    assert status.sessions() == "silent: 0 of 6 sessions over, 1 uncertain"
    assert status.money() == "money: $0.00, 1 attempts of unknown cost"


def test_a_halt_is_told_until_sessions_run_again() -> None:
    lines: list[Line] = [run_start(6), start(NAMES[0]), end(NAMES[0], code=10), halt(NAMES[0], 9)]
    status = status_of(state_of(*lines, began=0), 5)
    assert (status.phase, status.halts, status.until) == ("halted", ("usage-limit",), 0.009)
    again = [*lines, start(NAMES[0], 2, why="retry")]
    assert status_of(state_of(*again, began=0), 5).phase == "running"
    ended = [*lines, run_end(15)]
    status = status_of(state_of(*ended, began=0), 1e9)
    assert (status.phase, status.code) == ("halted", 15)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (15, "exit 15: run the same command again"),
        (16, "exit 16: no cap lets more start, or the disk is full"),
        (17, "exit 17: sessions failed: `--retry failed` runs them again"),
        (18, "exit 18: sessions may have spent: see `recorder batch reconcile`"),
        (12, "exit 12"),
    ],
)
def test_an_end_with_work_left_is_told_with_what_goes_on(code: int, said: str) -> None:
    state = state_of(run_start(6), start(NAMES[0]), end(NAMES[0]), run_end(code))
    assert list(status_of(state, 1e9).said())[-1] == said
    done = state_of(run_start(6), start(NAMES[0]), end(NAMES[0]), run_end(0))
    assert not any("exit" in line for line in status_of(done, 1e9).said())


def test_a_canary_that_waits_is_told_until_it_is_accepted() -> None:
    lines: list[Line] = [structs.replace(run_start(6), canary=1), start(NAMES[0])]
    assert status_of(state_of(*lines, began=0), 5).canary is None
    lines += [end(NAMES[0]), run_end(15)]
    status = status_of(state_of(*lines), 1e9)
    assert list(status.said())[-1] == "exit 15: the canary of 1 waits for `recorder batch accept`"
    accepted = [*lines, BatchAccept(sessions=(NAMES[0],), reason=None)]
    status = status_of(state_of(*accepted), 1e9)
    assert list(status.said())[-1] == "exit 15: run the same command again"


def test_how_the_latest_run_ended() -> None:
    lines: list[Line] = [run_start(6), start(NAMES[0]), end(NAMES[0])]
    assert status_of(state_of(*lines, run_end(0)), 1e9).phase == "ended"
    status = status_of(state_of(*lines, RunAbort(signal="SIGINT")), 1e9)
    assert (status.phase, status.code) == ("aborted", None)
    # A rate is the latest run's, and its time is the ledger's own.
    assert status.per_hour is not None
    assert status.seconds_left is None


def test_unknown_money_is_said_and_the_last_refusals_are() -> None:
    lines: list[Line] = [run_start(6)]
    for number, name in enumerate(NAMES[:5], start=10):
        lines += [start(name), end(name, code=number, cost=Unknown())]
    status = status_of(state_of(*lines), 1e9)
    assert [refusal.code for refusal in status.refusals] == [12, 13, 14]
    assert status.money() == "money: $0.00, 5 attempts of unknown cost"
    encoded = msgspec.json.decode(msgspec.json.encode(status))
    assert encoded["totals"]["unknownCalls"] == 5
    assert encoded["perHour"] == status.per_hour


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.2, "1 s"),
        (89, "89 s"),
        (90, "2 min"),
        (3600, "1 h"),
        (12_000, "3 h 20 min"),
        (187_200, "2 d 4 h"),
    ],
)
def test_a_duration_is_short(seconds: float, said: str) -> None:
    assert duration(seconds) == said
