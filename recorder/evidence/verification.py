"""A batch verified from its directory alone: digests, chains, schemas, every file derived again.

Nothing is written, run or asked for. A file counts by its path; a link is never followed. What is
wrong is a ``Fault`` each, all of them; what cannot be known from the files is said beside it.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from recorder import __version__
from recorder.audit.logs import schema_faults
from recorder.batch.assembly import Kept, assemble, line_standing
from recorder.batch.pinned import Pinned, PinnedLine, encode_pinned
from recorder.batch.schedule import Slot, count, slots
from recorder.disciplines.sessions import LOG as VERDICTS_LOG
from recorder.disciplines.sessions import RECORD as VERDICTS
from recorder.disciplines.sessions import BatchVerdicts
from recorder.evidence.document import Evidence
from recorder.evidence.pricing import shipped_prices
from recorder.evidence.signing import EnvelopeError, key_id, open_envelope, public_pem, read_public
from recorder.evidence.signing_keys import Trusted
from recorder.evidence.statement import (
    Predicate,
    Statement,
    construction_of,
    predicate_of,
    read_statement,
    statement_bytes,
)
from recorder.evidence.verification_fault import Fault
from recorder.evidence.verification_judged import verify_judged
from recorder.evidence.verification_ledger import LedgerFiles, verify_ledger
from recorder.evidence.verification_session import (
    LOG,
    Derived,
    Expected,
    form_faults,
    verify_session,
)
from recorder.ledger.chain import LEDGER
from recorder.ledger.chain import read as read_ledger
from recorder.ledger.state import State, fold_reading
from recorder.plain_file import LARGEST, decode, open_plain, read_plain
from recorder.plan.identifiers import PatternError
from recorder.plan.reading import MEMBERS, PlanText, read_plan
from recorder.refusal import ExitCode, Refusal
from recorder.transcript.checker import check
from recorder.transform.cites import compile_cites
from recorder.workspace.manifest import Manifest, read_manifest

BATCH = "batch.json"
CONSTRUCTION = "evidence/construction.json"
STATEMENT = "evidence/statement.json"
SIGNER = "evidence/signer.pub"
REPORT = "report.html"
LOCK = "batch.lock"
STOP = "stop"

# Files that no statement names: itself and its key; the lock, which is empty; a picture of it all;
# verdicts over it, which are judged again.
UNSIGNED = frozenset({STATEMENT, SIGNER, REPORT, LOCK, STOP, VERDICTS, VERDICTS_LOG})

# Texts that sessions changed, each under its digest.
_BEFORE = re.compile(r"arms/before/(?P<digest>[0-9a-f]{64})")
_ATTEMPT = re.compile(
    r"sessions/(?P<attempt>(?P<session>[^/]+)\.attempt-(?P<number>[0-9]{1,9}))/.+"
)
# Fewer sessions than this are done before a second process has started.
SESSIONS_OF_A_PROCESS = 40

CANNOT_KNOW = (
    "that the driver ran as it says: whoever holds the signer's key can sign any bytes",
    "that the bytes were what the engine's pipe gave: the driver alone read it",
    "findings, times, exit statuses, inspect output, reasons of a refusal: as recorded",
    "the digest of a file that a session added or changed: as recorded, and held to its copy",
    "what a task was, beyond the text in the recorded command",
)


@dataclass(frozen=True)
class SignatureState:
    """``key`` is None for an unsigned batch; ``name`` is whom it is trusted as, None for nobody."""

    key: str | None
    name: str | None
    signed_at: str | None


@dataclass(frozen=True)
class Verification:
    """``sessions`` were derived again, ``without_end`` have no evidence of an end."""

    faults: tuple[Fault, ...]
    signature: SignatureState
    files: int
    sessions: int
    without_end: tuple[str, ...]
    transcripts: int
    notes: tuple[str, ...]

    def said(self) -> Iterator[str]:
        """What was checked and what cannot be known, a line each."""
        yield self._signature()
        yield (
            f"derived again, and the same bytes: {_number(self.sessions, 'session')} (event, "
            "counts, corroboration, identity, cost, record) from streams, egress logs and "
            f"manifests; {_number(self.transcripts, 'transcript')} from the sessions"
            if not self.faults
            else f"derived again: {_number(self.sessions, 'session')} and "
            f"{_number(self.transcripts, 'transcript')}; {_number(len(self.faults), 'fault')}"
        )
        yield f"checked: {_number(self.files, 'file')}, every chain of an egress log, every schema"
        yield from self.notes
        for name in self.without_end:
            yield f"no end: {name} has none, so nothing of it was derived"
        for unknown in CANNOT_KNOW:
            yield f"not known: {unknown}"

    def _signature(self) -> str:
        if self.signature.key is None:
            return (
                "unsigned: no statement names these files, so they are consistent with each other "
                "and nothing says whose they are"
            )
        whose = (
            f"trusted here as {self.signature.name}"
            if self.signature.name is not None
            else "which nobody here has trusted: compare it with the one that its owner publishes"
        )
        return f"signed: {self.signature.signed_at} by {self.signature.key}, {whose}"


_OF_A_BATCH = ("plans", "arms", "assembled")


def verify_batch(
    directory: Path,
    *,
    trusted: Sequence[Trusted] = (),
    required: Trusted | None = None,
    judged: BatchVerdicts | None = None,
) -> Verification:
    """Verify a batch's directory. ``required``: the key that has to have signed it. ``judged``:
    the batch judged again, to hold the verdicts in it to.

    Refusal 2 for what is no batch's directory.
    """
    if not any((directory / name).exists() for name in (BATCH, STATEMENT, "sessions")):
        raise Refusal(ExitCode.USAGE, f"{directory}: is no batch's directory: it holds no {BATCH}")
    if not any((directory / name).exists() for name in (BATCH, STATEMENT, LEDGER, *_OF_A_BATCH)):
        # `recorder record` writes no more than that; of a batch whose files are gone more is left.
        raise Refusal(
            ExitCode.USAGE,
            f"{directory}: holds sessions and no batch ({BATCH}, {LEDGER}): `recorder check` holds "
            "a record to the contract, and `recorder audit verify` a log to its chain",
        )
    return _Batch(directory, trusted, required, judged).verify()


def digests_of(directory: Path) -> tuple[dict[str, str], list[Fault]]:
    """The digest, as hex, of every file that a statement names; and what is no plain file."""
    names, faults = _walk(directory)
    return {name: _digest(directory / name) for name in sorted(names - UNSIGNED)}, faults


def statement_of(directory: Path, *, signed_at: str, key: str) -> tuple[bytes, tuple[Fault, ...]]:
    """The statement about a batch as it stands. Faults of its files are not looked for here but
    where they keep the statement from being made."""
    batch = _Batch(directory, (), None)
    pinned = batch.pinned()
    digests, faults = digests_of(directory)
    if pinned is None:
        return b"", (*batch.faults, *faults)
    sessions = []
    state, _ = fold_reading(read_ledger(batch.read(LEDGER) or b""))
    for name in sorted({slot.name for slot in _slots(pinned)}):
        latest = state.latest(name)
        if latest is None or latest.end is None:
            continue
        aside = directory / "sessions" / f"{name}.attempt-{latest.number}"
        path = (aside if aside.is_dir() else aside.with_name(name)) / "evidence.json"
        if path.is_file():
            try:
                sessions.append(decode(path.read_bytes(), Evidence))
            except msgspec.MsgspecError as error:
                faults.append(Fault(f"sessions/{name}/evidence.json", "", str(error)))
    costs = _costs(directory, digests, faults)
    try:
        predicate = predicate_of(
            pinned,
            [slot.name for slot in _slots(pinned)],
            sessions,
            batch.read(CONSTRUCTION),
            costs,
            signed_at=signed_at,
            key=key,
        )
    except msgspec.MsgspecError as error:
        faults.append(Fault(CONSTRUCTION, "", str(error)))
        return b"", tuple(faults)
    return statement_bytes(digests, predicate), tuple(faults)


def predicate_schema() -> dict[str, Any]:
    """The JSON Schema of the statement, as the project ships it."""
    text = resources.files("recorder.evidence").joinpath("statement.schema.json").read_text("utf-8")
    schema = json.loads(text)
    assert isinstance(schema, dict)  # noqa: S101 - the project's own file
    return schema


class _Batch:
    def __init__(
        self,
        directory: Path,
        trusted: Sequence[Trusted],
        required: Trusted | None,
        judged: BatchVerdicts | None = None,
    ) -> None:
        self.directory = directory
        self.trusted = trusted
        self.required = required
        self.judged = judged
        self.faults: list[Fault] = []
        self.notes: list[str] = []
        self.names: frozenset[str] = frozenset()
        self.arms: frozenset[str] = frozenset()

    def find(self, file: str, member: str, what: str) -> None:
        self.faults.append(Fault(file, member, what))

    def read(self, name: str) -> bytes | None:
        try:
            return _read(self.directory / name)
        except OSError:
            return None

    def verify(self) -> Verification:
        names, odd = _walk(self.directory)
        self.names = frozenset(names)
        self.faults += odd
        digests = {name: _digest(self.directory / name) for name in sorted(names - UNSIGNED)}
        signature, statement = self._signature(digests)
        pinned = self.pinned()
        sessions: dict[str, Derived] = {}
        transcripts = 0
        if pinned is not None:
            sessions = self._sessions(pinned)
            self._construction(pinned)
            state = self._ledger(pinned, sessions, digests)
            transcripts = self._transcripts(pinned, sessions, state)
            self._strays(pinned, state)
            if statement is not None:
                self._predicate(statement)
        self._report()
        ended = sorted(name for name, each in sessions.items() if each.evidence is not None)
        verdicts = verify_judged(self.read(VERDICTS), self.read(VERDICTS_LOG), ended, self.judged)
        self.faults += verdicts.faults
        self.notes += verdicts.notes
        return Verification(
            faults=tuple(dict.fromkeys(self.faults)),
            signature=signature,
            files=len(digests),
            sessions=len(ended),
            without_end=tuple(sorted(set(sessions) - set(ended))),
            transcripts=transcripts,
            notes=tuple(self.notes),
        )

    # The signature and what it names.

    def _signature(self, digests: Mapping[str, str]) -> tuple[SignatureState, Statement | None]:
        unsigned = SignatureState(None, None, None)
        envelope, pem = self.read(STATEMENT), self.read(SIGNER)
        if envelope is None:
            if self.required is not None:
                self.find(
                    STATEMENT, "", f"is missing: the batch is not signed by {self.required.id}"
                )
            if pem is not None:
                self.find(STATEMENT, "", f"is missing, and {SIGNER} is there")
            return unsigned, None
        if pem is None:
            self.find(SIGNER, "", f"is missing, and {STATEMENT} is there")
            return unsigned, None
        try:
            key = read_public(pem)
        except EnvelopeError as error:
            self.find(SIGNER, "", str(error))
            return unsigned, None
        if public_pem(key) != pem:
            self.find(SIGNER, "", "is not in the form in which a key is written")
        own = key_id(key)
        if self.required is not None and self.required.id != own:
            self.find(STATEMENT, "", f"is signed by {own} and not by {self.required.id}")
        name = next((each.name for each in self.trusted if each.id == own), None)
        try:
            payload = open_envelope(envelope, key)
            statement = read_statement(payload)
        except (EnvelopeError, msgspec.MsgspecError) as error:
            self.find(STATEMENT, "", str(error))
            return SignatureState(own, name, None), None
        self._schema(json.loads(payload))
        if statement.predicate.key != own:
            self.find(STATEMENT, "predicate.key", f"is {statement.predicate.key} and not {own}")
        self._subjects(statement, digests)
        return SignatureState(own, name, statement.predicate.signed_at), statement

    def _schema(self, statement: object) -> None:
        # Imported where it is used: it takes 0.1 s, which an unsigned batch need not pay.
        from jsonschema import Draft202012Validator

        validator = Draft202012Validator(predicate_schema())
        for error in validator.iter_errors(statement):
            self.find(STATEMENT, error.json_path.removeprefix("$."), error.message[:200])

    def _subjects(self, statement: Statement, digests: Mapping[str, str]) -> None:
        signed = {subject.name: subject.digest.get("sha256") for subject in statement.subject}
        for name in sorted({*signed, *digests}):
            if name not in digests:
                self.find(name, "", "is missing, and the statement names it")
            elif name not in signed:
                self.find(name, "", "is not in the statement: it was added after it was signed")
            elif signed[name] != digests[name]:
                what = f"is sha256:{digests[name]} and was signed as sha256:{signed[name]}"
                self.find(name, "", what)

    def _predicate(self, statement: Statement) -> None:
        """The predicate made again of the files; a file's own fault is not told twice."""
        if self.faults:
            return
        before = statement.predicate
        payload, _ = statement_of(self.directory, signed_at=before.signed_at, key=before.key)
        if not payload:
            return
        now = read_statement(payload).predicate
        if now != before:
            for member in Predicate.__struct_fields__:
                if getattr(now, member) != getattr(before, member):
                    self.find(STATEMENT, f"predicate.{member}", "is not what the files give")

    # What was pinned.

    def pinned(self) -> Pinned | None:
        data = self.read(BATCH)
        if data is None:
            self.find(BATCH, "", "is missing")
            return None
        try:
            pinned = decode(data, Pinned)
        except msgspec.MsgspecError as error:
            self.find(BATCH, "", f"is not a batch's own record: {error}")
            return None
        for member, what in form_faults(data, encode_pinned(pinned)):
            self.find(BATCH, member, what)
        planned = count(_members(pinned))
        if planned != len(pinned.order):
            # Its sessions are not named before that is known: a number can say any count of them.
            self.find(BATCH, "order", f"names {len(pinned.order)} sessions, its lines {planned}")
            return None
        for number, line in enumerate(pinned.lines):
            try:
                compile_cites(line.identifiers)
            except PatternError as error:
                self.find(BATCH, f"lines[{number}].identifiers", str(error))
                return None
        if pinned.recorder != __version__:
            self.notes.append(
                f"written by recorder {pinned.recorder}: this is {__version__}, and where its "
                "words are others, a record that disagrees need not be one that was changed"
            )
        if tuple(slot.name for slot in _slots(pinned)) != pinned.order:
            self.find(BATCH, "order", "is not the order that its lines and its seed give")
        return pinned

    def _construction(self, pinned: Pinned) -> None:
        data = self.read(CONSTRUCTION)
        if data is None:
            self.find(CONSTRUCTION, "", "is missing: nothing says that the attack list was run")
            return
        try:
            found = construction_of(data)
        except msgspec.MsgspecError as error:
            self.find(CONSTRUCTION, "", f"is not the result of an attack list: {error}")
            return
        for attempt in found.open:
            self.find(CONSTRUCTION, "attempts", f"{attempt}: was open")
        if not found.attempts:
            self.find(CONSTRUCTION, "attempts", "holds none")
        if found.session_image != pinned.session_image:
            what = f"is {found.session_image}; {BATCH} pins {pinned.session_image}"
            self.find(CONSTRUCTION, "session_image", what)

    def _plan(self, name: str, line: PinnedLine) -> PlanText | None:
        data = self.read(name)
        if data is None:
            self.find(name, "", "is missing")
            return None
        try:
            plan = read_plan(data.decode("utf-8"), name)
        except UnicodeDecodeError as error:
            self.find(name, "", f"is not UTF-8 (byte {error.start + 1})")
            return None
        except Refusal as refusal:
            self.find(name, "", "; ".join(refusal.reasons).removeprefix(f"{name}: "))
            return None
        for member in MEMBERS:
            planned, pinned = plan.members.get(member), str(getattr(line, member))
            if planned != pinned:
                self.find(name, member, f"is {planned}; {BATCH} pins {pinned}")
        if plan.tier != line.tier:
            self.find(name, "tier", f"is {plan.tier}; {BATCH} pins {line.tier}")
        planned_probes = tuple(probe.id for probe in plan.probes)
        if planned_probes != line.probes:
            self.find(name, "probes", f"are {planned_probes}; {BATCH} pins {line.probes}")
        return plan

    def _manifest(self, name: str, line: PinnedLine) -> Manifest | None:
        data = self.read(name)
        if data is None:
            self.find(name, "", "is missing")
            return None
        found = f"sha256:{sha256(data).hexdigest()}"
        if found != line.manifest:
            self.find(name, "", f"is {found}; {BATCH} pins {line.manifest}")
        try:
            return read_manifest(data.decode("utf-8"), name)
        except (UnicodeDecodeError, ValueError) as error:
            self.find(name, "", f"is no manifest: {error}")
        except Refusal as refusal:
            self.find(name, "", "; ".join(refusal.reasons))
        return None

    # The sessions.

    def _sessions(self, pinned: Pinned) -> dict[str, Derived]:
        plans: dict[int, PlanText | None] = {}
        manifests: dict[int, Manifest | None] = {}
        for number, line in enumerate(pinned.lines, start=1):
            name = line_name(number, line)
            plans[number] = self._plan(f"plans/{name}.txt", line)
            manifests[number] = self._manifest(f"arms/{name}.manifest", line)
        by_session: dict[str, list[str]] = {}
        for name in self.names:
            folder, _, rest = name.removeprefix("sessions/").partition("/")
            if name.startswith("sessions/") and rest:
                by_session.setdefault(folder, []).append(rest)
        self.arms = frozenset(
            entry.sha256.removeprefix("sha256:")
            for manifest in manifests.values()
            for entry in (manifest.entries if manifest is not None else ())
            if not entry.is_link
        )
        work = [
            (
                _expected(slot, pinned, plans[slot.line], manifests[slot.line]),
                tuple(by_session.get(slot.name, ())),
            )
            for slot in sorted(_slots(pinned), key=lambda slot: slot.name)
        ]
        found = _each(self.directory, work)
        for derived in found:
            self.faults += derived.faults
        return {expected.name: each for (expected, _), each in zip(work, found, strict=True)}

    def _ledger(
        self, pinned: Pinned, sessions: Mapping[str, Derived], digests: Mapping[str, str]
    ) -> State:
        data = self.read(LEDGER)
        if data is None:
            self.find(LEDGER, "", "is missing: nothing says what ran")
            return State()
        state, faults = verify_ledger(
            data,
            LedgerFiles(digests, self.read),
            sessions,
            sessions,
            pinned.prices or shipped_prices(),
        )
        self.faults += faults
        return state

    def _transcripts(self, pinned: Pinned, sessions: Mapping[str, Derived], state: State) -> int:
        """Every transcript assembled again; how many there are."""
        count = 0
        for number, line in enumerate(pinned.lines, start=1):
            name = line_name(number, line)
            path = f"assembled/{name}.md"
            own = sorted(
                (slot for slot in _slots(pinned) if slot.line == number),
                key=lambda slot: (slot.position, slot.repetition),
            )
            standing = line_standing(name, [slot.name for slot in own], state)
            data = self.read(path)
            if data is None:
                if standing.whole and standing.recorded:
                    self.find(path, "", "is missing, and every session of its line recorded")
                continue
            count += 1
            recorded = [slot.name for slot in own if state.standing(slot.name) == "recorded"]
            kept = [self._kept(session, sessions[session]) for session in recorded]
            if not recorded:
                self.find(path, "", "is there, and no session of its line recorded")
            if not recorded or any(each is None for each in kept):
                continue
            try:
                text = assemble(standing, [each for each in kept if each is not None])
            except Refusal as refusal:
                self.find(path, "", "; ".join(refusal.reasons))
                continue
            if text.encode() != data:
                self.find(path, *_first_difference(data, text.encode()))
        return count

    def _kept(self, name: str, derived: Derived) -> Kept | None:
        data = self.read(f"sessions/{name}/record.md")
        if data is None or derived.evidence is None:
            return None
        try:
            checked = check(data.decode("utf-8"), f"sessions/{name}/record.md")
        except (Refusal, UnicodeDecodeError):
            return None
        directory = self.directory / "sessions" / name
        return Kept(directory, derived.evidence, checked.identity, checked.events[0])

    # What should not be there.

    def _strays(self, pinned: Pinned, state: State) -> None:
        planned = {slot.name for slot in _slots(pinned)}
        lines = [line_name(number, line) for number, line in enumerate(pinned.lines, start=1)]
        known = {
            BATCH,
            LEDGER,
            CONSTRUCTION,
            *UNSIGNED,
            *(f"plans/{name}.txt" for name in lines),
            *(f"arms/{name}.manifest" for name in lines),
            *(f"assembled/{name}.md" for name in lines),
        }
        attempts = set()
        for name in sorted(self.names):
            folder, _, rest = name.removeprefix("sessions/").partition("/")
            if name in known or (name.startswith("sessions/") and rest and folder in planned):
                continue
            before = _BEFORE.fullmatch(name)
            if before is not None and before["digest"] in self.arms:
                self._text_before(name, before["digest"])
            elif (kept := _ATTEMPT.fullmatch(name)) is not None:
                attempts.add(kept["attempt"])
                known_attempts = len(state.sessions.get(kept["session"], ()))
                if not 1 <= int(kept["number"]) <= known_attempts:
                    self.find(name, "", "is of an attempt that the ledger does not know")
            else:
                self.find(name, "", "is no file that a recorder writes into a batch")
        for attempt in sorted(attempts):
            self.notes.append(
                f"earlier attempt: {attempt} is kept; its files are held to the ledger, and it was "
                "not derived again"
            )
        if LOCK in self.names and self.read(LOCK):
            self.find(LOCK, "", "is not empty")

    def _text_before(self, name: str, digest: str) -> None:
        """A text of an arm holds what the arm's manifest says that it held."""
        found = _digest(self.directory / name)
        if found != digest:
            self.find(name, "", f"holds other bytes than its name says: sha256:{found}")

    def _report(self) -> None:
        if REPORT in self.names:
            self.notes.append(f"not verified: {REPORT} is a picture of these files: make it again")


def line_name(number: int, line: PinnedLine) -> str:
    return f"L{number}-{line.tier}-{line.arm}"


def _slots(pinned: Pinned) -> tuple[Slot, ...]:
    return slots(_members(pinned), pinned.seed)


def _members(pinned: Pinned) -> list[tuple[str, str, int, int]]:
    return [(line.tier, line.arm, len(line.probes), line.repetitions) for line in pinned.lines]


def _expected(
    slot: Slot, pinned: Pinned, plan: PlanText | None, manifest: Manifest | None
) -> Expected:
    line = pinned.lines[slot.line - 1]
    probe = line.probes[slot.position - 1]
    planned = next((each for each in (plan.probes if plan else ()) if each.id == probe), None)
    return Expected(
        name=slot.name,
        probe=probe,
        line=line,
        manifest=manifest,
        answers=(planned.answers or None) if planned else None,
        max_turns=line.max_turns or (plan.max_turns if plan else None),
        known=planned is not None,
        rehearsal=pinned.rehearsal is not None,
        session_image=pinned.session_image,
        sidecar_image=pinned.sidecar_image,
        prices=pinned.prices,
    )


def _each(directory: Path, work: Sequence[tuple[Expected, tuple[str, ...]]]) -> list[Derived]:
    """Every session, in order; many of them on every core."""
    one = partial(_one, directory)
    workers = min(os.cpu_count() or 1, 1 + len(work) // SESSIONS_OF_A_PROCESS)
    if workers <= 1:
        return list(map(one, work))
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(one, work, chunksize=SESSIONS_OF_A_PROCESS // 2))


def _one(directory: Path, work: tuple[Expected, tuple[str, ...]]) -> Derived:
    expected, names = work
    place = directory / "sessions" / expected.name
    derived = verify_session(expected, names, lambda name: _read(place / name) or b"")
    faults = list(derived.faults)
    if LOG in names:
        faults += _log_schema(f"sessions/{expected.name}/{LOG}", _read(place / LOG) or b"")
    return replace(derived, faults=tuple(faults))


def _log_schema(name: str, data: bytes) -> Iterator[Fault]:
    for number, line in enumerate(data.splitlines(), start=1):
        for fault in _line_faults(line):
            member, _, what = fault.partition(": ")
            yield Fault(name, f"line {number}, {member}", what)


# A line takes 1 ms; whoever verifies a batch again and again has most of its lines already.
@lru_cache(maxsize=2048)
def _line_faults(line: bytes) -> tuple[str, ...]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return ()  # told already, as a fault of the chain
    return tuple(schema_faults(value)) if isinstance(value, dict) else ()


def _costs(directory: Path, digests: Mapping[str, str], faults: list[Fault]) -> dict[str, int]:
    costs = {}
    for name in sorted(digests):
        if name.startswith("assembled/"):
            try:
                text = (directory / name).read_text("utf-8")
                costs[name] = check(text, name).identity.cost_cents
            except UnicodeDecodeError:
                faults.append(Fault(name, "", "is not UTF-8"))
            except Refusal as refusal:
                faults.append(Fault(name, "", "; ".join(refusal.reasons)))
    return costs


def _walk(directory: Path) -> tuple[set[str], list[Fault]]:
    """Every plain file by its path below the directory; what is none is a fault."""
    names: set[str] = set()
    faults: list[Fault] = []
    folders = [directory]
    while folders:
        folder = folders.pop()
        for entry in os.scandir(folder):
            name = Path(entry.path).relative_to(directory).as_posix()
            try:
                name.encode("utf-8")
            except UnicodeEncodeError:
                shown = name.encode("utf-8", "backslashreplace").decode()
                faults.append(Fault(shown, "", "has a name that is not UTF-8"))
                continue
            found = entry.stat(follow_symlinks=False)
            mode, size = found.st_mode, found.st_size
            if stat.S_ISDIR(mode):
                folders.append(Path(entry.path))
            elif stat.S_ISREG(mode) and size > LARGEST:
                faults.append(Fault(name, "", f"is larger than {LARGEST} bytes, and was not read"))
            elif stat.S_ISREG(mode):
                names.add(name)
            else:
                faults.append(Fault(name, "", "is no plain file"))
    return names, faults


def _read(path: Path) -> bytes | None:
    try:
        return read_plain(path)
    except FileNotFoundError:
        return None


def _digest(path: Path) -> str:
    whole = sha256()
    with open_plain(path) as file:
        while chunk := file.read(1 << 20):
            whole.update(chunk)
    return whole.hexdigest()


def _first_difference(found: bytes, derived: bytes) -> tuple[str, str]:
    lines = derived.split(b"\n")
    for number, line in enumerate(found.split(b"\n"), start=1):
        if number > len(lines) or line != lines[number - 1]:
            return f"line {number}", "is not what its sessions give"
    return "", "ends before what its sessions give"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
