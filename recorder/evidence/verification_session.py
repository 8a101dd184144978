"""One session derived again from its raw evidence, and compared byte for byte. Pure.

From the stream, the egress log, the arm's manifest and the recorded digests come the counts, the
corroboration, the event, the identity and the record. What comes from none of them is taken as
recorded: findings of a check, times, inspect output, how the session ended, why it was refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from hashlib import sha256
from io import BytesIO
from typing import Any

import msgspec
from msgspec import UNSET

from proxy.egress import read
from recorder.batch.pinned import PinnedLine
from recorder.evidence.accounting import Account, account_of
from recorder.evidence.corroboration import corroborate
from recorder.evidence.corroboration_record import record_of
from recorder.evidence.counting import counts_of
from recorder.evidence.document import (
    CorroborationRecord,
    Egress,
    Evidence,
    Workspace,
    encode_evidence,
)
from recorder.evidence.egress import EgressSummary, summarise
from recorder.evidence.pricing import PriceTable, shipped_prices
from recorder.evidence.prose import statements
from recorder.evidence.verification_fault import Fault
from recorder.plain_file import decode
from recorder.refusal import ExitCode, Refusal
from recorder.session.harness import CONFIGURATION_DIRECTORY, WORKSPACE
from recorder.stream.observation import Observation, observe
from recorder.stream.provider import Unknown, provider_members
from recorder.stream.whole import whole_faults
from recorder.transcript.checker import check
from recorder.transcript.contract import Event, Identity
from recorder.transcript.writer import event_yaml, transcript_markdown
from recorder.transform.cites import cites_in, compile_cites
from recorder.transform.event import build_event
from recorder.transform.produced import Places, ProducedFile, places_of, produced_paths
from recorder.workspace.manifest import Manifest
from recorder.workspace.names import path_text

EVIDENCE, RECORD, EVENT = "evidence.json", "record.md", "event.yaml"
STREAM, LOG, STARTED, ERRORS = "raw.jsonl", "egress.jsonl", "started", "stderr.log"
PRODUCED = "produced/"
NAMES = frozenset({EVIDENCE, RECORD, EVENT, STREAM, LOG, STARTED, ERRORS})

_COPY = re.compile(r"produced/[0-9a-f]{64}")
# What is kept of a session's containers when its driver ended before it.
_LEFT = re.compile(r"outcome\.json|leftover-(?:sidecar|session)\.(?:json|error)")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Expected:
    """What the batch says of a session. ``answers`` is None for a probe without a closed set,
    ``prices`` for the table that is shipped.

    ``known``: False where no plan of the line can be read, and then answers are as recorded.
    """

    name: str
    probe: str
    line: PinnedLine
    manifest: Manifest | None
    answers: tuple[str, ...] | None
    max_turns: int | None
    known: bool
    rehearsal: bool
    session_image: str
    sidecar_image: str
    prices: PriceTable | None = None


@dataclass(frozen=True)
class Derived:
    """A session that was derived. ``evidence`` is None where none can be read, or none is there.

    ``account`` and ``stated`` dollars are what its log and its stream say of its cost.
    """

    evidence: Evidence | None
    faults: tuple[Fault, ...]
    account: Account | None = None
    stated: Decimal | None = None


def verify_session(
    expected: Expected, names: Sequence[str], content: Callable[[str], bytes]
) -> Derived:
    """``names``: files of the session's directory; ``content`` gives one by its name there."""
    return _Session(expected, frozenset(names), content).verify()


class _Session:
    def __init__(
        self, expected: Expected, names: frozenset[str], content: Callable[[str], bytes]
    ) -> None:
        self.expected = expected
        self.prices = expected.prices or _prices()
        self.names = names
        self.content = content
        self.faults: list[Fault] = []

    def find(self, file: str, member: str, what: str) -> None:
        self.faults.append(Fault(f"sessions/{self.expected.name}/{file}", member, what))

    def verify(self) -> Derived:
        for name in sorted(self.names):
            left = EVIDENCE not in self.names and _LEFT.fullmatch(name)
            if name not in NAMES and not _COPY.fullmatch(name) and not left:
                self.find(name, "", "is no file that a recorder writes there")
        self._copies()
        if EVIDENCE not in self.names:
            for name in (RECORD, EVENT):
                if name in self.names:
                    self.find(EVIDENCE, "", f"is missing, and {name} says that the session ended")
            return Derived(None, tuple(self.faults))
        evidence = self._evidence()
        if evidence is None or not self._has(STREAM, "the session ran"):
            return Derived(evidence, tuple(self.faults))
        self._has(STARTED, "the session ran")
        self._has(ERRORS, "the session ran")
        observation = observe([self.content(STREAM)])
        self._derive(evidence, observation)
        return Derived(
            evidence,
            tuple(self.faults),
            account_of(self.content(LOG) if LOG in self.names else None, self.prices),
            None if observation.result is None else observation.result.cost_dollars,
        )

    def _has(self, name: str, why: str) -> bool:
        if name not in self.names:
            self.find(name, "", f"is missing, and {why}")
        return name in self.names

    def _copies(self) -> None:
        for name in sorted(self.names):
            if _COPY.fullmatch(name):
                found = sha256(self.content(name)).hexdigest()
                if found != name.removeprefix(PRODUCED):
                    self.find(name, "", f"holds other bytes than its name says: sha256:{found}")

    def _evidence(self) -> Evidence | None:
        data = self.content(EVIDENCE)
        try:
            evidence = decode(data, Evidence)
        except msgspec.MsgspecError as error:
            self.find(EVIDENCE, "", f"is not the evidence of a session: {error}")
            return None
        for member, what in form_faults(data, encode_evidence(evidence)):
            self.find(EVIDENCE, member, what)
        for container in ("session_container", "sidecar_container"):
            if not _is_inspected(getattr(evidence, container)):
                self.find(EVIDENCE, f"{container}.HostConfig", "is not what an engine says of one")
                return None
        return evidence

    def _derive(self, evidence: Evidence, observation: Observation) -> None:
        log = self._log(evidence)
        summary = None if log is None else summarise(log)
        corroboration = self._corroboration(evidence, log, summary)
        self._members(evidence, observation, summary, corroboration)
        self._workspace(evidence.workspace)
        recorded = self._recorded()
        if evidence.refusal is not None:
            self._refused(evidence, corroboration)
            return
        for name in (EVENT, RECORD):
            self._has(name, "the session recorded")
        if corroboration is not None and not corroboration.agrees:
            self.find(EVIDENCE, "refusal", "is absent, and the witnesses disagree")
        for fault in whole_faults(observation, True, STREAM):
            self.find(STREAM, "", f"{fault.removeprefix(STREAM)}".strip(" :,"))
        if recorded is None:
            return
        identity, event = recorded
        derived = self._event(evidence, observation, event)
        if derived is None:
            return
        if EVENT in self.names and self.content(EVENT) != event_yaml(derived).encode():
            self.find(EVENT, *_differing_event(event, derived))
        own = self._identity(observation, identity)
        text = transcript_markdown(
            f"Session {self.expected.name} of {self.expected.probe}",
            {},
            own,
            statements([evidence]),
            [derived],
        )
        if self.content(RECORD) != text.encode():
            self.find(RECORD, *_differing_record(self.content(RECORD), text, identity, own))

    def _log(self, evidence: Evidence) -> bytes | None:
        if LOG not in self.names:
            if evidence.refusal is None:
                self.find(LOG, "", "is missing, so nothing says what left")
            return None
        log = self.content(LOG)
        lines = log.splitlines(keepends=True)
        reading = read(lines)
        for fault in reading.faults:
            where, _, what = fault.partition(": ")
            self.find(LOG, where if what else "", what or where)
        first = reading.lines[0] if reading.lines else {}
        for member, own in (
            ("session", self.expected.name),
            ("policy", evidence.sidecar.get("policy")),
        ):
            if first.get(member) != own:
                self.find(LOG, f"line 1, {member}", f"is {first.get(member)!r} and not {own!r}")
        return log

    def _corroboration(
        self, evidence: Evidence, log: bytes | None, summary: EgressSummary | None
    ) -> CorroborationRecord | None:
        if log is None or summary is None or summary.faults:
            return None
        task = evidence.argv[-1] if evidence.argv[-2:-1] == ("--",) else None
        try:
            found = corroborate(
                BytesIO(self.content(STREAM)),
                log.splitlines(keepends=True),
                task=task,
                session=self.expected.name,
                prices=self.prices,
            )
        except Refusal as refusal:
            self.find(LOG, "", "; ".join(refusal.reasons))
            return None
        return record_of(found)

    def _members(
        self,
        evidence: Evidence,
        observation: Observation,
        summary: EgressSummary | None,
        corroboration: CorroborationRecord | None,
    ) -> None:
        """Each member of the evidence that the raw files or the batch decide."""
        expected = self.expected
        counts = counts_of(observation)
        members: dict[str, Any] = {
            "probe": expected.probe,
            "session": expected.name,
            "tier": expected.line.tier,
            "arm": expected.line.arm,
            "rehearsal": expected.rehearsal or observation.rehearsal,
            "harness_version": observation.inits[-1].harness_version if observation.inits else None,
            "capped": observation.capped,
            "counts": counts,
            "corroboration": corroboration,
        }
        if expected.known:
            members["max_turns"] = expected.max_turns
        for name, derived in members.items():
            self._same(name, getattr(evidence, name), derived)
        if evidence.disciplines is not None or expected.line.disciplines is not None:
            held = evidence.disciplines.digest if evidence.disciplines else None
            if held != expected.line.disciplines and evidence.refusal is None:
                what = f"is {held}; batch.json pins {expected.line.disciplines}"
                self.find(EVIDENCE, "disciplines.digest", what)
        if summary is not None:
            self._same("egress", evidence.egress, _egress(evidence.egress, summary, evidence))
        for container, image in (
            ("session_container", expected.session_image),
            ("sidecar_container", expected.sidecar_image),
        ):
            found = getattr(evidence, container).get("Image")
            if found != image:
                self.find(EVIDENCE, f"{container}.Image", f"is {found!r}; batch.json pins {image}")
        network = (evidence.session_container.get("HostConfig") or {}).get("NetworkMode")
        if network != "none":
            self.find(EVIDENCE, "session_container.HostConfig.NetworkMode", f"is {network!r}")

    def _same(self, name: str, recorded: Any, derived: Any) -> None:
        for member, one, other in _differences(name, recorded, derived):
            self.find(EVIDENCE, member, f"is {_brief(one)}, and its raw files give {_brief(other)}")

    def _workspace(self, workspace: Workspace | None) -> None:
        """What changed, as far as the arm's manifest decides it."""
        manifest = self.expected.manifest
        if workspace is None or manifest is None:
            return
        there = {path_text(entry.path): entry for entry in manifest.entries}
        for member, paths, known in (
            ("added", workspace.added, False),
            ("changed", workspace.changed, True),
            ("mode_changed", workspace.mode_changed, True),
            ("removed", workspace.removed or (), True),
        ):
            for path in paths:
                is_file = path in there and not (member != "removed" and there[path].is_link)
                if is_file != known:
                    holds = "holds it" if is_file else "holds no such file"
                    self.find(
                        EVIDENCE, f"workspace.{member}", f"{path}: the arm's manifest {holds}"
                    )

    def _recorded(self) -> tuple[Identity, Event] | None:
        if RECORD not in self.names:
            return None
        try:
            checked = check(self.content(RECORD).decode("utf-8"), RECORD)
        except UnicodeDecodeError as error:
            self.find(RECORD, "", f"is not UTF-8 (byte {error.start + 1})")
            return None
        except Refusal as refusal:
            for reason in refusal.reasons:
                self.find(RECORD, "", reason.removeprefix(RECORD).strip(" :,"))
            return None
        if len(checked.events) != 1:
            self.find(RECORD, "Events", f"holds {len(checked.events)} events and not one")
            return None
        return checked.identity, checked.events[0]

    def _refused(self, evidence: Evidence, corroboration: CorroborationRecord | None) -> None:
        for name in (EVENT, RECORD):
            if name in self.names:
                self.find(name, "", "is there, and evidence.json says that the session was refused")
        code = evidence.refusal.code if evidence.refusal else 0
        if code == ExitCode.WITNESSES and corroboration is not None and corroboration.agrees:
            self.find(EVIDENCE, "refusal.code", "is 14, and the witnesses agree")

    def _event(self, evidence: Evidence, observation: Observation, recorded: Event) -> Event | None:
        places = places_of(observation, (WORKSPACE,), (CONFIGURATION_DIRECTORY,))
        before = len(self.faults)
        self._documents(evidence, observation, places)
        produced = self._produced(evidence, observation, places, recorded)
        try:
            return build_event(
                observation,
                probe=self.expected.probe,
                session=self.expected.name,
                document_digest=lambda path: _document(evidence, places.place(path)),
                produced=produced,
                answers=self._answers(recorded),
            )
        except KeyError as error:
            if len(self.faults) == before:
                self.find(EVIDENCE, "document_digests", f"holds no {error}, which a call named")
            return None

    def _answers(self, recorded: Event) -> tuple[str, ...] | None:
        if self.expected.known:
            return self.expected.answers
        return (recorded.answer,) if isinstance(recorded.answer, str) else None

    def _documents(self, evidence: Evidence, observation: Observation, places: Places) -> None:
        """Recorded digests of documents: each of a path that a call named, and of its bytes."""
        placed = [places.place(call.path) for call in observation.calls if call.path is not None]
        named = {path for path in placed if not path.startswith("/")}
        for path, digest in evidence.document_digests.items():
            member = f"document_digests.{path}"
            if path not in named:
                self.find(EVIDENCE, member, "no call named it")
            known = self._known(evidence.workspace, path)
            if known is not None and digest not in known:
                self.find(EVIDENCE, member, f"is {digest or 'empty'}, and not {_either(known)}")

    def _known(self, workspace: Workspace | None, path: str) -> frozenset[str] | None:
        """The digests that a path of the workspace can have; None where nothing decides it."""
        if workspace is None or self.expected.manifest is None or not workspace_whole(workspace):
            return None
        loose = {item.path for item in (*workspace.excluded, *workspace.left)}
        if path in (*workspace.added, *workspace.changed):
            return frozenset(
                f"sha256:{name.removeprefix(PRODUCED)}"
                for name in self.names
                if _COPY.fullmatch(name)
            )
        if path in loose:
            return None
        if path in (workspace.removed or ()):
            return frozenset({""})
        entries = {path_text(entry.path): entry for entry in self.expected.manifest.entries}
        entry = entries.get(path)
        return frozenset({"" if entry is None or entry.is_link else entry.sha256})

    def _produced(
        self, evidence: Evidence, observation: Observation, places: Places, recorded: Event
    ) -> tuple[ProducedFile, ...] | None:
        """What was produced: the paths are derived, a changed file's digest is as recorded and
        is held to the copy that is kept."""
        workspace = evidence.workspace
        if workspace is None or not workspace_whole(workspace):
            return None
        changed = sorted((*workspace.added, *workspace.changed), key=_bytewise)
        artifacts = () if recorded.produced is UNSET else recorded.produced
        by_path = {artifact.path: artifact for artifact in artifacts}
        pattern = compile_cites(self.expected.line.identifiers)
        files = []
        for path in produced_paths(observation, places, changed=changed):
            known = self._known(workspace, path) if not path.startswith("/") else frozenset({""})
            artifact = by_path.get(path)
            digest = artifact.result if artifact is not None else ""
            if known is not None and digest not in known:
                if artifact is not None:
                    what = f"is {digest or 'empty'}, and not {_either(known)}"
                    self.find(RECORD, f"produced {path}", what)
                digest = min(known) if len(known) == 1 else digest
            copy = f"{PRODUCED}{digest.removeprefix('sha256:')}"
            held = digest and copy in self.names
            files.append(
                ProducedFile(
                    path=path,
                    sha256=digest,
                    cites=cites_in(self.content(copy), pattern) if held else (),
                    findings=UNSET if artifact is None else artifact.findings,
                )
            )
        return tuple(files)

    def _identity(self, observation: Observation, recorded: Identity) -> Identity:
        """Every member but the day, which only the driver's clock knew."""
        members = provider_members(observation)
        line = self.expected.line
        cost = members.cost_cents
        return Identity(
            model=members.model,
            served_version=members.served_version,
            tree=line.tree,
            lock=line.lock,
            selection=line.selection,
            read_set=line.read_set,
            seed=line.seed,
            harness=line.harness,
            tier=line.tier,
            arm=line.arm,
            at=recorded.at,
            cost_cents=recorded.cost_cents if isinstance(cost, Unknown) else cost,
        )


@cache
def _prices() -> PriceTable:
    # Reading the table takes 5 to 10 ms, longer than deriving a small session.
    return shipped_prices()


def workspace_whole(workspace: Workspace) -> bool:
    return workspace.stopped is None and not workspace.not_read


def form_faults(data: bytes, again: bytes) -> Iterator[tuple[str, str]]:
    """Where a document is not in the form in which a recorder writes it: the member, and how.

    ``again`` is the same, decoded and written by this recorder. A member that an earlier recorder
    did not have yet may be absent where it is None or empty now; none may be there that is unknown,
    out of its order, or written another way.
    """
    if data == again:
        return
    try:
        found, known = json.loads(data), json.loads(again)
        if msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n" != data:
            yield "", "is not in the form in which a recorder writes it"
        yield from _form("", found, known)
    except RecursionError:
        # A document that is read may be too deep to be walked: that takes more of the stack.
        yield "", "is nested too deep"


def _form(name: str, found: Any, known: Any) -> Iterator[tuple[str, str]]:
    if isinstance(found, dict) and isinstance(known, dict):
        for key, value in found.items():
            member = f"{name}.{key}" if name else str(key)
            if key in known:
                yield from _form(member, value, known[key])
            else:
                yield member, "is a member that no recorder writes"
        for key in known:
            if key not in found and known[key] not in (None, [], {}):
                yield f"{name}.{key}" if name else str(key), "is missing"
        if [key for key in known if key in found] != [key for key in found if key in known]:
            yield name, "holds its members in another order"
    elif isinstance(found, list) and isinstance(known, list) and len(found) == len(known):
        for number, (one, other) in enumerate(zip(found, known, strict=True)):
            yield from _form(f"{name}[{number}]", one, other)
    elif found != known or type(found) is not type(known):
        yield name, f"is {_brief(found)}, and is read as {_brief(known)}"


def _is_inspected(container: Mapping[str, Any]) -> bool:
    """Whether what is read of an engine's inspect output has its form."""
    host = container.get("HostConfig") or {}
    return isinstance(host, dict) and isinstance(host.get("Binds") or [], list)


def _document(evidence: Evidence, placed: str) -> str:
    return "" if placed.startswith("/") else evidence.document_digests[placed]


def _egress(recorded: Egress, summary: EgressSummary, evidence: Evidence) -> Egress:
    return Egress(
        host=recorded.host,
        allowed=summary.allowed,
        refused=summary.refused,
        fetches=summary.fetches,
        not_forwarded=summary.not_forwarded,
        faults=summary.faults,
        policy=evidence.sidecar.get("policy", ""),
        bound=summary.bound,
    )


def _differences(name: str, recorded: Any, derived: Any) -> Iterator[tuple[str, Any, Any]]:
    """The members that differ, by their path; a struct is gone into."""
    one, other = msgspec.to_builtins(recorded), msgspec.to_builtins(derived)
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys((*one, *other)):
            yield from _differences(f"{name}.{key}", one.get(key), other.get(key))
    elif one != other:
        yield name, one, other


def _differing_event(recorded: Event, derived: Event) -> tuple[str, str]:
    """Where a recorded event is not the one that was derived."""
    for member, one, other in _differences("event", recorded, derived):
        return member, f"is {_brief(one)}, and its raw files give {_brief(other)}"
    return "", "is not in the form in which a recorder writes it, or not the event of record.md"


def _differing_record(
    recorded: bytes, derived: str, identity: Identity, own: Identity
) -> tuple[str, str]:
    for member, one, other in _differences("identity", identity, own):
        return member, f"is {_brief(one)}, and its raw files give {_brief(other)}"
    lines = derived.encode().split(b"\n")
    for number, line in enumerate(recorded.split(b"\n"), start=1):
        if number > len(lines) or line != lines[number - 1]:
            return f"line {number}", "is not what its evidence gives"
    return "", "ends before what its evidence gives"


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _either(known: frozenset[str]) -> str:
    if not known:
        return "that of a copy: none is kept"
    return " or ".join(sorted(each or "empty" for each in known)[:3])


def _bytewise(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
