"""The ledger of a batch held to its own chain and to every file that it speaks of. Pure.

From the files come each attempt's digests, how it ended, its requests, tokens and cost, what the
log of one without an end says, and every total. What comes from none of them is taken as recorded:
times, durations, who paid, the harness's word for a failure, lines added and removed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from recorder.evidence.accounting import account_without_end
from recorder.evidence.pricing import PriceTable
from recorder.evidence.verification_fault import Fault
from recorder.evidence.verification_session import Derived
from recorder.ledger.chain import LEDGER, ledger_schema, read
from recorder.ledger.entries import Line, RunEnd, RunStart
from recorder.ledger.schema import KINDS
from recorder.ledger.state import Attempt, OrderError, State

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

BATCH = "batch.json"
LOG = "egress.jsonl"
STARTED = "started"


@dataclass(frozen=True)
class LedgerFiles:
    """``digests``: every file of the batch by its path, as hex. ``read`` gives one's bytes."""

    digests: Mapping[str, str]
    read: Callable[[str], bytes | None]


def verify_ledger(
    data: bytes,
    files: LedgerFiles,
    planned: Collection[str],
    sessions: Mapping[str, Derived],
    prices: PriceTable,
) -> tuple[State, tuple[Fault, ...]]:
    """What the ledger says, and everything in it that its chain or a file does not bear out."""
    verifier = _Ledger(files, planned, sessions, prices)
    verifier.lines(data)
    for attempts in verifier.state.sessions.values():
        for attempt in attempts:
            verifier.attempt(attempt, len(attempts))
    verifier.unknown_directories()
    return verifier.state, tuple(verifier.faults)


class _Ledger:
    def __init__(
        self,
        files: LedgerFiles,
        planned: Collection[str],
        sessions: Mapping[str, Derived],
        prices: PriceTable,
    ) -> None:
        self.files = files
        self.planned = frozenset(planned)
        self.sessions = sessions
        self.prices = prices
        self.state = State()
        self.faults: list[Fault] = []
        self.folders: dict[str, dict[str, str]] = {}
        for path, digest in files.digests.items():
            top, _, rest = path.partition("/")
            folder, _, name = rest.partition("/")
            if top == "sessions" and name:
                self.folders.setdefault(folder, {})[name] = f"sha256:{digest}"

    def find(self, member: str, what: str) -> None:
        self.faults.append(Fault(LEDGER, member, what))

    def lines(self, data: bytes) -> None:
        reading = read(data)
        for fault in reading.faults:
            self.find(f"line {fault.number}", fault.rule)
        if reading.torn:
            self.find("", "its last line is torn: the next run of the batch cuts it and says so")
        for line, text in zip(reading.lines, data.split(b"\n"), strict=False):
            where = f"line {line.sequence}"
            if not reading.faults:
                self.schema(where, line, text)
            try:
                self.state.take(line)
            except OrderError as error:
                self.find(where, str(error))
            if isinstance(line, RunStart):
                self.start(where, line)
            if isinstance(line, RunEnd) and line.totals != self.state.totals():
                self.find(f"{where}, totals", "are not those of the lines before it")

    def schema(self, where: str, line: Line, text: bytes) -> None:
        """What a line's members may be: that it has them all, and no other, was read already."""
        for error in _validator(type(line)).iter_errors(json.loads(text)):
            self.find(f"{where}, {error.json_path.removeprefix('$.')}", error.message[:200])

    def start(self, where: str, line: RunStart) -> None:
        pinned = self.files.digests.get(BATCH)
        if pinned is not None and line.batch != f"sha256:{pinned}":
            self.find(f"{where}, batch", f"is {line.batch}; {BATCH} is sha256:{pinned}")
        if line.jobs != len(self.planned):
            self.find(f"{where}, jobs", f"is {line.jobs}; {BATCH} pins {len(self.planned)}")

    def attempt(self, attempt: Attempt, latest: int) -> None:
        session = attempt.start.session
        if session not in self.planned:
            self.find(f"line {attempt.start.sequence}, session", f"{session} was not planned")
            return
        aside = f"{session}.attempt-{attempt.number}"
        folder = aside if aside in self.folders or attempt.number != latest else session
        self.egress(attempt, folder)
        self.decision(attempt)
        if attempt.end is None:
            return
        self.held(attempt, folder)
        if folder == session:
            self.end(attempt)

    def held(self, attempt: Attempt, folder: str) -> None:
        """The files of an attempt are those that it left."""
        assert attempt.end is not None  # noqa: S101 - asked by the caller
        found = self.folders.get(folder, {})
        said = attempt.end.files
        for name in sorted({*found, *said}):
            path = f"sessions/{folder}/{name}"
            if name not in found:
                self.faults.append(Fault(path, "", f"is missing, and {LEDGER} names it"))
            elif name not in said:
                what = "was not there when the session ended, by the ledger"
                self.faults.append(Fault(path, "", what))
            elif found[name] != said[name]:
                what = f"is {found[name]}, and was {said[name]} when the session ended"
                self.faults.append(Fault(path, "", what))

    def egress(self, attempt: Attempt, folder: str) -> None:
        """What was said of the log of an attempt without an end."""
        said = attempt.egress
        if said is None:
            return
        there = self.folders.get(folder, {})
        path = f"sessions/{folder}/{LOG}"
        log = self.files.read(path) if LOG in there else None
        account = account_without_end(log, STARTED in there, self.prices)
        self.same(
            f"line {said.sequence}",
            {
                "sha256": (said.sha256, there.get(LOG)),
                "whole": (said.whole, account.whole),
                "requests": (said.requests, account.requests),
                "cost": (said.cost, account.estimate),
                "tokens": (said.tokens, account.tokens),
            },
        )

    def decision(self, attempt: Attempt) -> None:
        said = attempt.decision
        if said is not None and attempt.egress is not None:
            self.same(f"line {said.sequence}", {"cost": (said.cost, attempt.egress.cost)})

    def end(self, attempt: Attempt) -> None:
        """How the latest attempt ended, by its evidence, its stream and its log."""
        end = attempt.end
        derived = self.sessions.get(attempt.start.session)
        if end is None or derived is None or derived.evidence is None or derived.account is None:
            return
        evidence, account = derived.evidence, derived.account
        refusal = evidence.refusal
        self.same(
            f"line {end.sequence}",
            {
                "outcome": (end.outcome, "recorded" if refusal is None else "refused"),
                "code": (end.code, 0 if refusal is None else refusal.code),
                "capped": (end.capped, evidence.capped),
                "requests": (end.requests, account.requests),
                "tokens": (end.tokens, account.tokens),
                "cost": (end.cost, account.cost(derived.stated)),
            },
        )
        workspace = evidence.workspace
        if attempt.changed is not None and workspace is not None:
            named = [file.path for file in attempt.changed.files]
            changed = [*workspace.added, *workspace.changed, *(workspace.removed or ())]
            self.same(f"line {attempt.changed.sequence}", {"files": (named, changed)})

    def same(self, where: str, members: Mapping[str, tuple[Any, Any]]) -> None:
        for member, (said, derived) in members.items():
            if said != derived:
                self.find(
                    f"{where}, {member}", f"is {_brief(said)}, and the files give {_brief(derived)}"
                )

    def unknown_directories(self) -> None:
        for folder in sorted(self.folders):
            if folder in self.planned and folder not in self.state.sessions:
                what = "holds files, and the ledger knows of no attempt that left them"
                self.faults.append(Fault(f"sessions/{folder}", "", what))


@cache
def _validator(kind: type) -> Draft202012Validator:
    """A validator of one kind's lines; the whole schema tries every kind on each."""
    # Imported where it is used: it takes 0.1 s.
    from jsonschema import Draft202012Validator

    if kind not in KINDS:
        raise TypeError(f"{kind.__name__} is no kind of line")
    whole = ledger_schema()
    return Draft202012Validator({**whole["$defs"][kind.__name__], "$defs": whole["$defs"]})


def _brief(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 120 else f"{text[:117]}..."
