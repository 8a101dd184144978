"""Drives a batch: what is due by its ledger is run, and what is whole is assembled.

Everything that can be refused without spending is refused before the host is asked, and everything
that ran is in the ledger before anything depends on it.
"""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from docker.errors import DockerException
from requests.exceptions import RequestException

from recorder import __version__
from recorder.batch.assembly import Kept, assemble, read_session, refuse_link
from recorder.batch.attempts import refuse_unexplained
from recorder.batch.batch import (
    Source,
    expected_of,
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
    standing_code,
)
from recorder.batch.engine_host import EngineHost
from recorder.batch.line import LaidLine, lay_line
from recorder.batch.recording import Job, Recorded
from recorder.batch.resume import Due, due_of, refuse_uncertain
from recorder.batch.run import Listed, Watch, run_on
from recorder.batch.runner import Host, Images
from recorder.batch.schedule import Slot, slots
from recorder.batch.spec import BatchSpec
from recorder.evidence.pricing import PriceTable, shipped_prices
from recorder.ledger.chain import LEDGER, digest_of
from recorder.ledger.entries import Caps, RunAbort, RunEnd, RunStart, Totals
from recorder.ledger.journal import Journal, open_journal
from recorder.refusal import ExitCode, Interrupt, Refusal
from recorder.session.driver import write_durable
from recorder.session.leftovers import driver_identity, work_directory
from recorder.workspace.place import outside_home, require_outside_corpus

SESSIONS = "sessions"


@dataclass(frozen=True)
class Report:
    """A batch after a run, in the order of its lines. ``ran`` is how many this driver ran."""

    rows: tuple[tuple[str, Kept | None], ...]
    transcripts: tuple[Path, ...]
    ran: int
    totals: Totals

    @property
    def failed(self) -> int:
        return self.totals.failed


@dataclass(frozen=True, kw_only=True)
class Order:
    """How a batch is to be driven this time.

    ``retry_failed``: failed sessions that reached the provider run again. ``heartbeat`` is in
    seconds, 0 for none. ``stop``, once set, starts nothing more.
    """

    stop: threading.Event
    retry_failed: bool = False
    heartbeat: float = HEARTBEAT_SECONDS
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
    host = EngineHost(docker_host, spec, source, not_enforced, host_skills)
    return drive(spec, corpus, out, source, host, order)


def drive(
    spec: BatchSpec, corpus: Path, out: Path, source: Source, host: Host, order: Order
) -> Report:
    """Run what is due of a batch, and assemble the lines that are whole.

    ``order.starting`` gets how many sessions are to run, before the first; ``order.ended`` how many
    of how many have ended.
    """
    require_model(spec.model, "model")
    require_outside_corpus(out, corpus, "output directory")
    outside_home(out, "output directory")
    out.mkdir(mode=0o755, parents=True, exist_ok=True)
    with held(out), work_directory() as work:
        lines = [
            lay_line(
                corpus,
                line,
                work / str(number),
                seed=spec.seed,
                lock=spec.lock,
                plan_command=spec.plan_command,
            )
            for number, line in enumerate(spec.lines, start=1)
        ]
        source.require_answers(probe.id for laid in lines for probe in laid.probes)
        slotted = slots(
            [(laid.line.tier, laid.line.arm, len(laid.probes), laid.repetitions) for laid in lines],
            spec.seed,
        )
        try:
            images = host.images()
            refuse_without_ledger(out)
            with open_journal(out) as journal:
                pin(out, pinned_of(spec, lines, slotted, source, images))
                write_plans(out, lines)
                batch = _Batch(spec, lines, slotted, out, source, images, journal)
                ran = batch.run(host, order)
                return _report(out, lines, slotted, ran, journal)
        finally:
            host.close()


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

    def run(self, host: Host, order: Order) -> int:
        """Run what is due; how many sessions that was."""
        prices = shipped_prices()
        sessions = self.out / SESSIONS
        refuse_unexplained(sessions, self.journal.state)
        host.collect(
            lambda: account_unended(self.journal, sessions, prices, final=True),
            self.journal.identity,
        )
        due = self._due(order)
        jobs = [job_of(slot, self.lines, self.out) for slot in self.slotted if slot.name in due]
        if jobs or self.journal.state.stopped is None:
            self._driver(host, order, jobs, due, prices)
        return len(jobs)

    def _due(self, order: Order) -> dict[str, Due]:
        """The attempts to run, by session. Refusal 18 where one waits for a decision."""
        state = self.journal.state
        found = {
            slot.name: due_of(
                state.sessions.get(slot.name, ()),
                rehearsal=self.source.rehearsal is not None,
                retry_failed=order.retry_failed,
            )
            for slot in self.slotted
        }
        refuse_uncertain((name for name, each in found.items() if each == "uncertain"), self.out)
        return {name: each for name, each in found.items() if isinstance(each, Due)}

    def _driver(
        self,
        host: Host,
        order: Order,
        jobs: Sequence[Job],
        due: dict[str, Due],
        prices: PriceTable,
    ) -> None:
        """One run of the ledger, from its start to its end."""
        spec, journal = self.spec, self.journal
        journal.append(
            RunStart(
                recorder=__version__,
                batch=digest_of((self.out / "batch.json").read_bytes()),
                jobs=len(self.slotted),
                parallel=spec.parallel,
                caps=Caps(batch=spec.cap, session=spec.bound, tiers={}),
            )
        )
        ledger = BatchLedger(
            journal,
            due,
            prices,
            billing_of(self.source.credential.form, rehearsal=self.source.rehearsal is not None),
            lambda _: spec.bound,
        )
        try:
            try:
                if jobs:
                    order.starting(len(jobs))
                    with host.running(
                        self.lines, self.out, self.images, journal.identity
                    ) as runner:
                        watch = self._watch(ledger, order, len(jobs))
                        with beating(
                            journal, order.heartbeat, lambda: ledger.running, order.stop.set
                        ):
                            run_on(
                                runner,
                                Listed(deque(jobs), order.stop),
                                parallel=spec.parallel,
                                watch=watch,
                                stop=order.stop,
                            )
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
        totals = self._totals()
        code = standing_code(totals)
        journal.append(RunEnd(code=int(code), totals=totals))

    def _totals(self) -> Totals:
        return self.journal.state.totals(len(self.slotted))

    def _watch(self, ledger: BatchLedger, order: Order, due: int) -> Watch:
        done, total = len(self.slotted) - due, len(self.slotted)
        counting = threading.Lock()

        def began(job: Job) -> None:
            write_durable(job.directory / "started", f"{driver_identity()}\n".encode())
            order.began(job)

        def ended(recorded: Recorded) -> None:
            nonlocal done
            ledger.ended(recorded)
            with counting:
                done += 1
                order.ended(recorded, done, total)

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


def _report(
    out: Path, lines: Sequence[LaidLine], slotted: Sequence[Slot], ran: int, journal: Journal
) -> Report:
    rows: list[tuple[str, Kept | None]] = []
    transcripts: list[Path] = []
    for number, laid in enumerate(lines, start=1):
        own = sorted(
            (slot for slot in slotted if slot.line == number),
            key=lambda slot: (slot.position, slot.repetition),
        )
        kept = [
            read_session(job.directory, expected_of(job))
            if journal.state.standing(job.session) in ("recorded", "failed")
            else None
            for job in (job_of(slot, lines, out) for slot in own)
        ]
        rows += zip((slot.name for slot in own), kept, strict=True)
        whole = [session for session in kept if session is not None and session.event is not None]
        if len(whole) == len(own):
            name = f"L{number}-{laid.line.tier}-{laid.line.arm}"
            path = out / "assembled" / f"{name}.md"
            refuse_link(path.parent)
            path.parent.mkdir(mode=0o755, exist_ok=True)
            write_durable(path, assemble(name, whole).encode())
            transcripts.append(path)
    return Report(tuple(rows), tuple(transcripts), ran, journal.state.totals(len(slotted)))
