"""The rounds of one run: sessions start until a halt, a cap, a bound or a stop, and after a wait
again.

What a round may start comes from ``Starts``; what ends it early is written into the ledger before
anything else is done about it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from proxy.egress import read
from recorder.batch.admission import Admission, Priced, Refused
from recorder.batch.batch_ledger import BatchLedger
from recorder.batch.halts import EXPIRY, FAILURES, IN_A_ROW, Facts, Halt, halt_of, statuses_of
from recorder.batch.money import counted
from recorder.batch.recording import Recorded
from recorder.batch.resume import Due
from recorder.batch.run import Watch, run_on
from recorder.batch.runner import Runner
from recorder.batch.signals import Told
from recorder.batch.starts import Queued, Starts
from recorder.batch.waiting import StoppedError, Waiting
from recorder.ledger.entries import RunHalt
from recorder.stream.failures import Failure, failure_of

READ_SIZE = 1 << 20
STOP_FILE_RULE = "stop-file"
_WEIGHT = {"by itself": 0, "at its reset": 1, "once renewed": 2, "by a person": 3}


@dataclass
class Round:
    """What one round came to. ``refused`` are sessions that a cap left out, ``bounded`` that the
    run may start no more; ``stopped`` that a stop file or a signal came."""

    halt: Halt | None = None
    recorded: int = 0
    refused: Sequence[tuple[Priced, Refused]] = ()
    bounded: bool = False
    stopped: bool = False


def _nobody(_: object, __: object) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Waits:
    """How a run waits for a halt to pass. ``now`` is in seconds since 1970; ``told`` gets the halt
    and the seconds of each wait."""

    told: Callable[[Halt, float], None] = _nobody
    now: Callable[[], float] = time.time
    pause: Callable[[float], None] | None = None


@dataclass
class Rounds:
    """One run's rounds, over one budget. ``due`` says what is to run, each time it is asked;
    ``queue`` are those sessions with their prices, in the batch's order."""

    ledger: BatchLedger
    admission: Admission
    parallel: int
    stop: threading.Event
    stop_file: Path
    watch: Watch
    due: Callable[[], Mapping[str, Due]]
    queue: Callable[[Mapping[str, Due]], Sequence[Queued]]
    waits: Waits | None
    lasting: Callable[[], bool] = lambda: True
    """Whether the host's credential lasts as long as a session that starts may."""
    signal: Told = field(default_factory=Told)
    in_a_row: int = 0
    _stop_told: bool = False
    _met: threading.Lock = field(default_factory=threading.Lock)
    _telling: threading.Lock = field(default_factory=threading.Lock)

    def stopped(self) -> bool:
        """Whether somebody asked that nothing more starts; the ledger says how, once."""
        rule = STOP_FILE_RULE if self.stop_file.exists() else self.signal.name
        if rule is not None:
            with self._telling:
                if not self._stop_told:
                    self._stop_told = True
                    self.ledger.journal.append(RunHalt(rule=rule, session=None, until=None))
        return rule is not None or self.stop.is_set()

    def run(self, runner: Runner) -> Round:
        """Every round; the last one's end."""
        if self.waits is None:
            return self._round(runner)
        waits = self.waits
        waiting: Waiting[Round] = Waiting(
            now=waits.now,
            pause=waits.pause or self._pause,
            stopped=self.stopped,
            told=waits.told,
            renewed=self.lasting,
        )
        last = Round()

        def one() -> Round:
            nonlocal last
            last = self._round(runner)
            return last

        try:
            return waiting.through(one)
        except StoppedError:
            # What the last round came to stands, and no more will start.
            last.stopped = True
            return last

    def _pause(self, seconds: float) -> None:
        self.stop.wait(seconds)

    def _round(self, runner: Runner) -> Round:
        ended = Round()
        due = self.due()
        self.ledger.due = due
        halted = threading.Event()

        def may_not() -> bool:
            if halted.is_set() or self.stopped():
                return True
            if not self.lasting():
                with self._met:
                    self._halting(Halt(EXPIRY, None), ended, halted)
            return halted.is_set()

        starts = Starts(self.queue(due), self.admission, may_not)

        def over(recorded: Recorded) -> None:
            self.watch.ended(recorded)
            with self._met:
                attempt = self.ledger.journal.state.latest(recorded.job.session)
                starts.settle(recorded.job, None if attempt is None else counted(attempt))
                halt = self._halt_of(recorded)
                ended.recorded += recorded.refusal is None
                if halt is not None:
                    self._halting(halt, ended, halted)

        watch = Watch(
            opening=self.watch.opening,
            starting=self.watch.starting,
            began=self.watch.began,
            ended=over,
            aborting=self.watch.aborting,
        )
        run_on(runner, starts, parallel=self.parallel, watch=watch, stop=self.stop)
        ended.refused = tuple(starts.refused)
        ended.bounded = starts.bounded
        ended.stopped = self.stopped()
        return ended

    def _halt_of(self, recorded: Recorded) -> Halt | None:
        if recorded.refusal is None:
            self.in_a_row = 0
            return None
        halt = halt_of(recorded.job.session, facts_of(recorded))
        if halt is not None:
            return halt
        # A limit or an outage is no failure of the sessions that met it.
        self.in_a_row += 1
        return Halt(FAILURES, None) if self.in_a_row >= IN_A_ROW else None

    def _halting(self, halt: Halt, ended: Round, halted: threading.Event) -> None:
        """Write a halt down, and start nothing more of this round."""
        if halt.session is None and ended.halt is not None and ended.halt.rule is halt.rule:
            return
        halted.set()
        until = None if halt.until is None else round(halt.until * 1000)
        self.ledger.journal.append(RunHalt(rule=halt.rule.name, session=halt.session, until=until))
        ended.halt = _graver(ended.halt, halt)


def _graver(one: Halt | None, other: Halt) -> Halt:
    """Of two halts that sessions in flight met, the one that is longer in the way."""
    if one is None:
        return other
    return max(one, other, key=lambda halt: (_WEIGHT[halt.rule.passes], halt.until or 0))


def facts_of(recorded: Recorded) -> Facts:
    """What is known of a session that was refused, from its own files."""
    directory, evidence = recorded.job.directory, recorded.evidence
    return Facts(
        code=int(recorded.code),
        ended=evidence.ended,
        failure=_failure(directory / "raw.jsonl"),
        answered=_answered(directory / "egress.jsonl") if evidence.egress.faults == () else None,
        began=evidence.harness_version is not None,
    )


def _failure(path: Path) -> Failure | None:
    try:
        with path.open("rb") as file:
            return failure_of(iter(partial(file.read, READ_SIZE), b""))
    except FileNotFoundError:
        # Nothing was read of the session, so nothing says how a request ended.
        return None


def _answered(path: Path) -> tuple[int, ...] | None:
    try:
        return statuses_of(read(path.read_bytes().splitlines(keepends=True)).lines)
    except FileNotFoundError:
        # No sidecar left one: then nothing is known of what the provider said.
        return None
