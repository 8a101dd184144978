"""What a batch writes into its ledger, and when: before what depends on it.

Every method is called from the thread that runs the session, and raises where a line could not be
written: then nothing goes on.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

from recorder.batch.attempts import (
    durable_files,
    egress_of,
    make_room,
    place_of,
)
from recorder.batch.recording import Job, Recorded
from recorder.batch.resume import Due
from recorder.durable import sync_directory
from recorder.evidence.accounting import account_of
from recorder.evidence.pricing import PriceTable
from recorder.ledger.entries import (
    Billing,
    FileChange,
    Heartbeat,
    SessionChange,
    SessionEnd,
    SessionStart,
)
from recorder.ledger.journal import Journal
from recorder.ledger.text_changes import line_counts
from recorder.session.container import SESSION_UID
from recorder.session.harness import Form
from recorder.workspace.manifest import Entry
from recorder.workspace.names import path_text

HEARTBEAT_SECONDS = 60.0


class BatchLedger:
    """``due``: the attempt that each session is to run; ``reserved`` what is held for it."""

    def __init__(
        self,
        journal: Journal,
        due: Mapping[str, Due],
        prices: PriceTable,
        billing: Billing,
        reserved: Callable[[Job], Decimal | None],
    ) -> None:
        self.journal = journal
        self.due = due
        self.prices = prices
        self.billing = billing
        self.reserved = reserved
        self._began: dict[str, float] = {}

    @property
    def running(self) -> int:
        return len(self._began)

    def opening(self, job: Job) -> None:
        """Leave the session's directory to its attempt, before a sidecar's label names it."""
        self.journal.require_in_place()
        make_room(job.directory, self.due[job.session].attempt, self.prices)

    def starting(self, job: Job) -> None:
        self.journal.require_in_place()
        job.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_directory(job.directory.parent)
        due = self.due[job.session]
        self._began[job.session] = time.monotonic()
        self.journal.append(
            SessionStart(
                session=job.session,
                attempt=due.attempt,
                why=due.why,
                slot=job.uid - SESSION_UID,
                uid=job.uid,
                reserved=self.reserved(job),
            )
        )

    def ended(self, recorded: Recorded) -> None:
        job = recorded.job
        attempt = self.due[job.session].attempt
        files = durable_files(job.directory)
        end = end_of(recorded, attempt, files, self.prices, self.billing)
        lasted = time.monotonic() - self._began.pop(job.session)
        change = change_of(recorded, attempt)
        self.journal.append(*(() if change is None else (change,)), end(round(lasted * 1000)))


def end_of(
    recorded: Recorded, attempt: int, files: Mapping[str, str], prices: PriceTable, billing: Billing
) -> Callable[[int], SessionEnd]:
    """The line of a session's end, for its duration in milliseconds."""
    job = recorded.job
    log = job.directory / "egress.jsonl"
    account = account_of(log.read_bytes() if log.is_file() else None, prices)
    return lambda milliseconds: SessionEnd(
        session=job.session,
        attempt=attempt,
        outcome="recorded" if recorded.refusal is None else "refused",
        code=int(recorded.code),
        capped=recorded.evidence.capped,
        failure=recorded.failure,
        cost=account.cost(recorded.dollars),
        billing=billing,
        tokens=account.tokens,
        requests=account.requests,
        duration_ms=milliseconds,
        files=dict(files),
    )


def change_of(recorded: Recorded, attempt: int) -> SessionChange | None:
    """The files that a session changed; None where its workspace was not read whole."""
    changes = recorded.changes
    if changes is None or not changes.whole:
        return None
    job = recorded.job
    kept = job.directory / "produced"

    def before(path: bytes) -> bytes:
        return (job.line.tree / os.fsdecode(path)).read_bytes()

    def after(entry: Entry) -> bytes:
        return (kept / entry.sha256.removeprefix("sha256:")).read_bytes()

    def counted(path: bytes, old: bytes, new: bytes) -> FileChange:
        added, removed = line_counts(old, new)
        return FileChange(path=path_text(path), added=added, removed=removed)

    return SessionChange(
        session=job.session,
        attempt=attempt,
        files=(
            *(counted(entry.path, b"", after(entry)) for entry in changes.added),
            *(counted(entry.path, before(entry.path), after(entry)) for entry in changes.changed),
            *(
                counted(path, b"" if is_link(job, path) else before(path), b"")
                for path in changes.removed or ()
            ),
        ),
    )


def is_link(job: Job, path: bytes) -> bool:
    entry = job.line.manifest.by_path.get(path)
    return entry is not None and entry.is_link


def account_unended(journal: Journal, sessions: Path, prices: PriceTable, *, final: bool) -> None:
    """Write down what the egress log of each attempt without an end says.

    ``final``: everything that is left of them was kept. Else one that was started and whose log is
    not there is left to the next driver.
    """
    for attempt in journal.state.unended():
        if attempt.egress is not None:
            continue
        session, number = attempt.start.session, attempt.number
        place = place_of(sessions / session, number, number)
        said = egress_of(place, session, number, prices)
        if final or said.requests is not None:
            journal.append(said)


@contextmanager
def beating(
    journal: Journal, seconds: float, running: Callable[[], int], failed: Callable[[], None]
) -> Iterator[None]:
    """A heartbeat every so many seconds; none for 0. ``failed`` where one could not be written."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(seconds):
            try:
                journal.append(Heartbeat(running=running()))
            except OSError:
                # Whoever writes the next line is told; until then nothing more may start.
                failed()
                return

    heart = threading.Thread(target=beat, name="heartbeat", daemon=True)
    if seconds > 0:
        heart.start()
    try:
        yield
    finally:
        over.set()
        if seconds > 0:
            heart.join()


def billing_of(form: Form, *, rehearsal: bool) -> Billing:
    """How sessions are paid for, by the form of the credential; a rehearsal is not."""
    if rehearsal:
        return "unknown"
    return "api" if form in ("api-key", "bearer") else "subscription"
