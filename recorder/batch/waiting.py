"""Waiting for a halt to pass, and going on: by the halt's own reset time, else by backing off.

The clock and the pause are the caller's, so that a stop file, a signal and a test come in between:
no pause is longer than a step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_result

from recorder.batch.halts import Halt

STEP_SECONDS = 60.0
FIRST_SECONDS = 300.0
LONGEST_SECONDS = 3600.0
MARGIN_SECONDS = 30.0
"""After a reset: whose clock is a little ahead asks too early, and asking costs a session."""
LONGEST_RESET_SECONDS = 8 * 24 * 3600.0
"""The longest limit is of a week. What is told to be further off is no time, or another clock's."""
RENEWAL_SECONDS = 24 * 3600.0
"""For so long a credential is waited for, once."""
TOLD_SECONDS = 600.0
"""How often that is told again."""
FRUITLESS = 13
"""So many halts, one after another, without a session that recorded between them."""


class Ended(Protocol):
    """How a run of sessions ended: its halt, None where none stopped it; how many recorded."""

    @property
    def halt(self) -> Halt | None: ...

    @property
    def recorded(self) -> int: ...


E = TypeVar("E", bound=Ended)


class StoppedError(Exception):
    """A stop file or a signal came while nothing ran."""


@dataclass
class Waiting(Generic[E]):
    """``now`` is in seconds since 1970; ``pause`` returns after at most so many seconds, earlier
    where it was woken; ``stopped`` is asked before and after each, and so is ``renewed``: whether
    the credential lasts. ``told`` gets each wait's halt and its seconds before it begins."""

    now: Callable[[], float]
    pause: Callable[[float], None]
    stopped: Callable[[], bool]
    told: Callable[[Halt, float], None]
    renewed: Callable[[], bool] = lambda: False
    fruitless: int = 0
    _halt: Halt | None = None

    def through(self, run: Callable[[], E]) -> E:
        """Run again after each halt that passes, until one run ends otherwise.

        What is returned is the last run's end: its halt is there where it does not pass without a
        person, or was the thirteenth without progress. Raises ``StoppedError`` in a wait.
        """
        retrying = Retrying(
            retry=retry_if_result(self._again),
            wait=self._seconds,
            before_sleep=self._tell,
            sleep=self._sleep,
        )
        ended: E = retrying(run)
        return ended

    def _again(self, ended: E) -> bool:
        if ended.recorded:
            self.fruitless = 0
        if ended.halt is None:
            return False
        self.fruitless += 1
        return ended.halt.rule.passes != "by a person" and self.fruitless < FRUITLESS

    def _seconds(self, state: RetryCallState) -> float:
        halt = _halt_of(state)
        if halt.rule.passes == "once renewed":
            return RENEWAL_SECONDS
        left = 0.0 if halt.until is None else halt.until - self.now()
        if 0 < left <= LONGEST_RESET_SECONDS:
            return left + MARGIN_SECONDS
        return min(FIRST_SECONDS * 2.0 ** (self.fruitless - 1), LONGEST_SECONDS)

    def _tell(self, state: RetryCallState) -> None:
        self._halt = _halt_of(state)
        self.told(self._halt, state.upcoming_sleep)

    def _sleep(self, seconds: float) -> None:
        """In steps. A clock that is set back makes no wait longer than it was to be."""
        halt = self._halt
        renewing = halt is not None and halt.rule.passes == "once renewed"
        began, paused, tell = self.now(), 0.0, TOLD_SECONDS
        while True:
            if self.stopped():
                raise StoppedError
            left = seconds - max(self.now() - began, paused)
            if left <= 0 or (renewing and self.renewed()):
                return
            if renewing and halt is not None and paused >= tell:
                tell += TOLD_SECONDS
                self.told(halt, left)
            step = min(left, STEP_SECONDS)
            self.pause(step)
            paused += step


def _halt_of(state: RetryCallState) -> Halt:
    halt: Halt | None = state.outcome.result().halt if state.outcome is not None else None
    if halt is None:
        raise ValueError("only a run that halted is waited for")
    return halt
