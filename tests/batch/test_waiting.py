"""Waiting for a halt to pass, by a clock that only the test moves (Q11 to Q13, Q25, Q26)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.batch.halts import RULES, Halt
from recorder.batch.waiting import (
    LONGEST_RESET_SECONDS,
    MARGIN_SECONDS,
    StoppedError,
    Waiting,
)

RULE = {rule.name: rule for rule in RULES}
OUTAGE = Halt(RULE["outage"], "s")


@dataclass(frozen=True)
class Run:
    halt: Halt | None = None
    recorded: int = 0


@dataclass
class Clock:
    time: float = 1_000_000.0
    pauses: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    stop_at: float = float("inf")
    runs: int = 0

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.time += seconds

    def waiting(self) -> Waiting[Run]:
        return Waiting(
            now=lambda: self.time,
            pause=self.pause,
            stopped=lambda: self.time >= self.stop_at,
            told=lambda _, seconds: self.waits.append(seconds),
        )

    def through(self, *ends: Run) -> Run:
        left = list(ends)

        def run() -> Run:
            self.runs += 1
            return left.pop(0) if len(left) > 1 else left[0]

        return self.waiting().through(run)


def test_halts_without_progress_back_off_and_the_thirteenth_is_the_last_q11() -> None:
    clock = Clock()
    ended = clock.through(Run(OUTAGE))
    assert ended.halt == OUTAGE
    assert clock.runs == 13
    assert clock.waits == [300, 600, 1200, 2400, *[3600] * 8]
    assert max(clock.pauses) <= 60


def test_progress_starts_the_count_again_q12() -> None:
    clock = Clock()
    clock.through(Run(OUTAGE), Run(OUTAGE), Run(OUTAGE, recorded=1), Run(OUTAGE), Run())
    assert clock.waits == [300, 600, 300, 600]


def test_a_reset_time_is_waited_for_whatever_came_before() -> None:
    clock = Clock()
    limit = Halt(RULE["usage-limit"], "s", clock.time + 300 + 18_000)
    assert clock.through(Run(OUTAGE), Run(limit), Run(recorded=2)) == Run(recorded=2)
    assert clock.waits == [300, 18_000 + MARGIN_SECONDS]
    assert max(clock.pauses) <= 60


def test_a_reset_time_that_is_over_is_backed_off_from() -> None:
    clock = Clock()
    clock.through(Run(Halt(RULE["usage-limit"], "s", clock.time - 1)), Run())
    assert clock.waits == [300]


def test_a_reset_that_no_limit_has_is_backed_off_from() -> None:
    clock = Clock()
    far = Halt(RULE["usage-limit"], "s", clock.time + LONGEST_RESET_SECONDS + 1)
    clock.through(Run(far), Run())
    assert clock.waits == [300]


@pytest.mark.parametrize("name", [rule.name for rule in RULES if rule.passes == "by a person"])
def test_what_needs_a_person_is_not_waited_for(name: str) -> None:
    clock = Clock()
    halt = Halt(RULE[name], "s")
    assert clock.through(Run(halt)).halt == halt
    assert (clock.runs, clock.pauses) == (1, [])


def test_a_stop_is_seen_within_a_step_of_a_wait_q26() -> None:
    clock = Clock()
    clock.stop_at = clock.time + 130
    with pytest.raises(StoppedError):
        clock.through(Run(OUTAGE))
    assert clock.runs == 1
    assert clock.pauses == [60, 60, 60]


def test_a_clock_that_is_set_back_makes_no_wait_longer() -> None:
    clock = Clock()
    waiting = clock.waiting()

    def pause(seconds: float) -> None:
        clock.pauses.append(seconds)
        clock.time -= 10_000

    waiting.pause = pause
    ends = [Run(OUTAGE), Run()]
    assert waiting.through(lambda: ends.pop(0)) == Run()
    assert sum(clock.pauses) == 300


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2)), max_size=60))
def test_a_batch_is_never_asked_more_than_thirteen_times_without_progress(
    ends: list[tuple[bool, int]],
) -> None:
    clock = Clock()
    clock.through(*(Run(OUTAGE if halted else None, n) for halted, n in ends), Run(OUTAGE))
    recorded = [n for halted, n in ends[: clock.runs]]
    streak = longest = 0
    for number in range(clock.runs):
        progressed = number < len(recorded) and recorded[number] > 0
        streak = 1 if progressed else streak + 1
        longest = max(longest, streak)
    assert longest <= 13
    assert all(300 <= wait <= 3600 for wait in clock.waits)
