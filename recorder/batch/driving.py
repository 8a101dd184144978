"""Drives a batch: what is due by its ledger is run, and what is whole is assembled.

Everything that can be refused without spending is refused before the host is asked, and everything
that ran is in the ledger before anything depends on it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from docker.errors import DockerException
from requests.exceptions import RequestException

from recorder import __version__
from recorder.batch.admission import Admission, Priced, Refused, caps_of, no_room
from recorder.batch.assembling import ASSEMBLED, SESSIONS, assemble_batch, withdraw
from recorder.batch.assembly import Kept, refuse_link
from recorder.batch.attempts import refuse_lost, refuse_unexplained
from recorder.batch.batch import (
    Source,
    held,
    job_of,
    pin,
    pinned_of,
    require_model,
    write_plans,
)
from recorder.batch.batch_ledger import (
    HEARTBEAT_SECONDS,
    BatchLedger,
    account_unended,
    beating,
    billing_of,
)
from recorder.batch.engine_host import EngineHost
from recorder.batch.given import Given, given_of, require_pin
from recorder.batch.line import LaidLine, lay_lines
from recorder.batch.money import Money, counted, line_of, money_of
from recorder.batch.recording import Job, Recorded
from recorder.batch.resume import Due, Over, due_of, refuse_uncertain
from recorder.batch.rounds import Round, Rounds, Waits
from recorder.batch.run import Watch
from recorder.batch.runner import Host, Images
from recorder.batch.schedule import Slot, slots
from recorder.batch.signals import ending_gently
from recorder.batch.spec import BatchSpec
from recorder.batch.standing import Standing, standing_of
from recorder.batch.starts import Queued
from recorder.durable import remove_parts, write_durable
from recorder.evidence.pricing import PriceTable
from recorder.ledger.chain import LEDGER, digest_of
from recorder.ledger.entries import Caps, RunAbort, RunEnd, RunStart, Totals
from recorder.ledger.journal import Journal, open_journal
from recorder.refusal import ExitCode, Interrupt, Refusal
from recorder.session.leftovers import driver_identity, work_directory
from recorder.workspace.place import outside_home, require_outside_corpus

STOP_FILE = "stop"
WRITTEN = ("plans", "arms", "arms/before", ASSEMBLED, "evidence")
"""Where a driver writes beside the directories of sessions, which go aside as it left them."""


@dataclass(frozen=True)
class Report:
    """A batch after a run, in the order of its lines. ``ran`` is how many this driver ran."""

    rows: tuple[tuple[str, Kept | None], ...]
    transcripts: tuple[Path, ...]
    ran: int
    totals: Totals
    money: Money
    standing: Standing

    @property
    def failed(self) -> int:
        return self.totals.failed


@dataclass(frozen=True, kw_only=True)
class Order:
    """How a batch is to be driven this time.

    ``retry_failed``: failed sessions that reached the provider run again. ``heartbeat`` is in
    seconds, 0 for none. ``stop``, once set, starts nothing more, and so does a file at
    ``stop_file`` (None: ``stop`` in the output directory). ``max_sessions`` is how many this run
    may start, ``canary`` how many run first and alone; ``waits``: halts are waited for.
    ``gently``: the first signal starts nothing more, and the second kills. ``opened`` gets the
    batch's ledger.
    """

    stop: threading.Event
    retry_failed: bool = False
    heartbeat: float = HEARTBEAT_SECONDS
    stop_file: Path | None = None
    max_sessions: int | None = None
    canary: int | None = None
    waits: Waits | None = None
    gently: bool = False
    opened: Callable[[Journal], None] = lambda _: None
    began: Callable[[Job], None] = lambda _: None
    ended: Callable[[Recorded, int, int], None] = lambda *_: None
    starting: Callable[[int], None] = lambda _: None


def run_batch(
    spec: BatchSpec,
    corpus: Path,
    out: Path,
    source: Source,
    docker_host: Callable[[], str],
    *,
    not_enforced: Callable[[], tuple[str, ...]],
    host_skills: frozenset[str],
    order: Order,
) -> Report:
    """``drive`` on an engine."""
    given = given_of(spec)
    host = EngineHost(docker_host, spec, source, not_enforced, host_skills, given)
    return drive(spec, given, corpus, out, source, host, order)


def drive(
    spec: BatchSpec,
    given: Given,
    corpus: Path,
    out: Path,
    source: Source,
    host: Host,
    order: Order,
) -> Report:
    """Run what is due of a batch, and assemble the lines that are whole.

    ``order.starting`` gets how many sessions are to run, before the first; ``order.ended`` how many
    of how many have ended.
    """
    require_model(spec.model, "model", given.policy)
    require_outside_corpus(out, corpus, "output directory")
    outside_home(out, "output directory")
    out.mkdir(mode=0o755, parents=True, exist_ok=True)
    refuse_stopped(order.stop_file or out / STOP_FILE)
    with held(out), work_directory() as work:
        lines = lay_lines(spec, corpus, work)
        require_pin(spec.pin, corpus, lines[0].line.members.tree)
        source.require_answers(probe.id for laid in lines for probe in laid.probes)
        slotted = slots(
            [(laid.line.tier, laid.line.arm, len(laid.probes), laid.repetitions) for laid in lines],
            spec.seed,
        )
        try:
            images = host.images()
            refuse_another_harness(spec, images)
            refuse_without_ledger(out)
            with open_journal(out) as journal:
                for directory in WRITTEN:
                    refuse_link(out / directory)
                for directory in ("", *WRITTEN):
                    remove_parts(out / directory)
                pinned = pinned_of(spec, lines, slotted, source, images, given)
                pin(out, pinned)
                write_plans(out, lines)
                order.opened(journal)
                batch = _Batch(spec, lines, slotted, out, source, images, journal, order, given)
                ran, standing = batch.run(host)
                assembled = assemble_batch(out, journal.state)
                return Report(
                    assembled.rows,
                    assembled.write(out / ASSEMBLED),
                    ran,
                    journal.state.totals(len(slotted)),
                    money_of(journal.state, pinned.lines),
                    standing,
                )
        finally:
            host.close()


def refuse_stopped(path: Path) -> None:
    """Refusal 15 where a stop file is there before anything starts."""
    if path.exists():
        raise Refusal(
            ExitCode.LEFT, f"{path}: is there, so nothing starts: remove it and run again"
        )


def refuse_another_harness(spec: BatchSpec, images: Images) -> None:
    """Refusal 4 where the session image holds another harness than the batch file names."""
    if spec.harness is not None and spec.harness != images.harness:
        raise Refusal(
            ExitCode.MOVED,
            f"harness {spec.harness}: the session image holds Claude Code {images.harness}: build "
            "the images that hold it, or name that one",
        )


def refuse_without_ledger(out: Path) -> None:
    """Refusal 19 for a batch whose ledger is gone: nothing says what ran of it."""
    if (out / "batch.json").exists() and not (out / LEDGER).exists():
        raise Refusal(
            ExitCode.CORRUPT,
            f"{out}: holds batch.json and no {LEDGER}, so nothing says what ran: use another --out",
        )


@dataclass(frozen=True)
class _Batch:
    """A batch that is pinned, with its ledger open."""

    spec: BatchSpec
    lines: Sequence[LaidLine]
    slotted: Sequence[Slot]
    out: Path
    source: Source
    images: Images
    journal: Journal
    order: Order
    given: Given

    def run(self, host: Host) -> tuple[int, Standing]:
        """Run what is due; how many sessions ran, and where the batch stands then."""
        prices = self.given.prices
        sessions = self.out / SESSIONS
        refuse_unexplained(sessions, self.journal.state)
        host.collect(
            lambda: account_unended(self.journal, sessions, prices, final=True),
            self.journal.identity,
        )
        found = self._standings()
        refuse_uncertain((name for name, each in found.items() if each == "uncertain"), self.out)
        over = (name for name, each in found.items() if each in ("recorded", "failed"))
        refuse_lost(sessions, over, self.journal.state)
        admission = self._admission()
        queued = self._queue(self._due())
        full = no_room(admission, (each.priced for each in queued))
        last = Round()
        if queued and full is not None:
            last.refused = [
                (each.priced, refused)
                for each in queued
                if isinstance(refused := admission.peek(each.priced), Refused)
            ]
        elif queued or self.journal.state.stopped is None or self._unasked_canary():
            # What a transcript says of a line that goes on is about to be wrong.
            going_on = {line_of(each.priced.session) for each in queued}
            lines = enumerate(self.lines, start=1)
            withdraw(self.out, {each.name(number) for number, each in lines if number in going_on})
            last = self._driver(host, admission, len(queued), prices)
        return admission.started, self._standing(last)

    def _standings(self) -> dict[str, Due | Over]:
        """The attempt that each session is to run, or why it has none."""
        state, order = self.journal.state, self.order
        return {
            slot.name: due_of(
                state.sessions.get(slot.name, ()),
                rehearsal=self.source.rehearsal is not None,
                retry_failed=order.retry_failed,
                retry_halted=order.waits is not None,
            )
            for slot in self.slotted
        }

    def _standing(self, last: Round) -> Standing:
        found = self._standings()
        halted = {
            name
            for name in found
            if (attempt := self.journal.state.latest(name)) is not None and attempt.halted
        }
        return standing_of(found, last, halted=halted, canary=self._waiting_canary(), out=self.out)

    @property
    def _canary(self) -> int | None:
        """How many sessions the batch's canary is, once it was asked for."""
        return self.order.canary or self.spec.canary or self.journal.state.canary

    def _unasked_canary(self) -> bool:
        """Whether a canary waits that the ledger does not know, its sessions having run before."""
        return bool(self._waiting_canary()) and self._canary != self.journal.state.canary

    def _waiting_canary(self) -> tuple[str, ...]:
        """The sessions of a canary that nobody accepted yet."""
        if self._canary is None or self.journal.state.accepted is not None:
            return ()
        return tuple(slot.name for slot in self.slotted[: self._canary])

    def _due(self) -> dict[str, Due]:
        """The attempts that may run, by session: those of a canary alone while it waits."""
        canary = self._waiting_canary()
        return {
            name: each
            for name, each in self._standings().items()
            if isinstance(each, Due) and (not canary or name in canary)
        }

    def _queue(self, due: Mapping[str, Due]) -> list[Queued]:
        queued = []
        for slot in self.slotted:
            if slot.name in due:
                laid = self.lines[slot.line - 1]
                priced = Priced(slot.name, laid.line.tier, laid.session_dollars)
                queued.append(Queued(job_of(slot, self.lines, self.out), priced))
        return queued

    def _tiers(self) -> dict[str, Decimal]:
        return {laid.line.tier: laid.ceiling_dollars for laid in self.lines}

    def _admission(self) -> Admission:
        """The caps, less what every attempt so far counts."""
        admission = Admission(caps_of(self.spec.cap, self._tiers()), self.order.max_sessions)
        tiers = {slot.name: self.lines[slot.line - 1].line.tier for slot in self.slotted}
        for attempt in self.journal.state.attempts():
            tier = tiers.get(attempt.start.session)
            if tier is not None:
                admission.carry(tier, counted(attempt))
        return admission

    def _driver(self, host: Host, admission: Admission, jobs: int, prices: PriceTable) -> Round:
        """One run of the ledger, from its start to its end."""
        spec, journal, order = self.spec, self.journal, self.order
        journal.append(
            RunStart(
                recorder=__version__,
                batch=digest_of((self.out / "batch.json").read_bytes()),
                jobs=len(self.slotted),
                parallel=spec.parallel,
                caps=Caps(batch=spec.cap, session=spec.bound, tiers=self._tiers()),
                canary=self._canary,
            )
        )
        ledger = BatchLedger(
            journal,
            {},
            prices,
            billing_of(self.source.credential.form, rehearsal=self.source.rehearsal is not None),
            lambda job: admission.held[job.session].dollars,
        )
        rounds = Rounds(
            ledger=ledger,
            admission=admission,
            parallel=1 if self._waiting_canary() else spec.parallel,
            stop=order.stop,
            stop_file=order.stop_file or self.out / STOP_FILE,
            watch=self._watch(ledger),
            due=self._due,
            queue=self._queue,
            waits=order.waits,
            lasting=lambda: self.source.lasts(spec.timeout_seconds),
        )
        last = Round()
        try:
            try:
                if jobs:
                    order.starting(jobs)
                    with ExitStack() as during:
                        if order.gently:
                            during.enter_context(ending_gently(order.stop, rounds.signal))
                        runner = during.enter_context(
                            host.running(self.lines, self.out, self.images, journal.identity)
                        )
                        during.enter_context(
                            beating(
                                journal, order.heartbeat, lambda: ledger.running, order.stop.set
                            )
                        )
                        last = rounds.run(runner)
            finally:
                # What this driver knows of a session that it could not bring to its end.
                account_unended(journal, self.out / SESSIONS, prices, final=False)
        except (Interrupt, KeyboardInterrupt) as interrupt:
            if not isinstance(journal.state.stopped, RunAbort):
                journal.append(RunAbort(signal=signal_of(interrupt)))
            raise
        except Refusal as refusal:
            journal.append(RunEnd(code=int(refusal.code), totals=self._totals()))
            raise
        except (DockerException, RequestException):
            # The engine went away: the driver ends in order, and says so with exit 3.
            journal.append(RunEnd(code=int(ExitCode.MISSING), totals=self._totals()))
            raise
        journal.append(RunEnd(code=int(self._standing(last).code), totals=self._totals()))
        return last

    def _totals(self) -> Totals:
        return self.journal.state.totals(len(self.slotted))

    def _watch(self, ledger: BatchLedger) -> Watch:
        order = self.order
        standings = self._standings().values()
        over = sum(not isinstance(each, Due) for each in standings)
        total = len(self.slotted)
        # By name: a session that a limit ended runs again after the wait.
        ran: set[str] = set()
        counting = threading.Lock()

        def began(job: Job) -> None:
            write_durable(job.directory / "started", f"{driver_identity()}\n".encode())
            order.began(job)

        def ended(recorded: Recorded) -> None:
            ledger.ended(recorded)
            with counting:
                ran.add(recorded.job.session)
                order.ended(recorded, over + len(ran), total)

        def aborting(interrupt: BaseException) -> None:
            ledger.journal.append(RunAbort(signal=signal_of(interrupt)))

        return Watch(
            opening=ledger.opening,
            starting=ledger.starting,
            began=began,
            ended=ended,
            aborting=aborting,
        )


def signal_of(interrupt: BaseException) -> str:
    """The name of the signal that an interrupt came of."""
    return signal.Signals(interrupt.number).name if isinstance(interrupt, Interrupt) else "SIGINT"
