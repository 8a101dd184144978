"""From the sessions of a line to its transcript. Pure but for reading the sessions' own files.

What a session's directory holds is taken only where its parts say the same: the evidence, the
record, the event, and the stream that the event was made from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import structs

from recorder.evidence.document import Evidence
from recorder.evidence.prose import statements
from recorder.ledger.entries import SessionEnd
from recorder.ledger.state import Standing, State
from recorder.plain_file import decode, open_plain, read_plain
from recorder.refusal import ExitCode, Refusal
from recorder.session.harness import CONFIGURATION_DIRECTORY, WORKSPACE
from recorder.stream.observation import observe
from recorder.stream.whole import whole_faults
from recorder.transcript.checker import check
from recorder.transcript.contract import REHEARSAL_PREFIX, Event, Identity
from recorder.transcript.writer import event_yaml, transcript_markdown
from recorder.transform.event import build_event
from recorder.transform.produced import places_of

EVIDENCE = "evidence.json"
RECORD = "record.md"
EVENT = "event.yaml"
RAW = "raw.jsonl"
READ_SIZE = 1 << 20


@dataclass(frozen=True)
class Expected:
    """What a batch put into a slot. ``answers`` is None for a probe without a closed set."""

    session: str
    probe: str
    tier: str
    arm: str
    answers: tuple[str, ...] | None


@dataclass(frozen=True)
class Kept:
    """One session as its directory holds it. ``identity`` and ``event`` are None when refused."""

    directory: Path
    evidence: Evidence
    identity: Identity | None
    event: Event | None


def refuse_link(path: Path) -> None:
    """Refusal 19 for a link: what lies behind one is not what a driver put there."""
    if path.is_symlink():
        raise Refusal(ExitCode.CORRUPT, f"{path}: is a link, and a driver makes none: move it away")


def read_session(directory: Path, expected: Expected | None = None) -> Kept | None:
    """The session of a directory; None where none ended there.

    Refusal 19 for a broken file, for one that is a link, for a session that is not the one
    ``expected``, and for a record that the event or the stream beside it does not bear out.
    """
    for link in (directory, *(directory / name for name in (EVIDENCE, RECORD, EVENT, RAW))):
        refuse_link(link)
    path = directory / EVIDENCE
    try:
        evidence = decode(read_plain(path), Evidence)
    except FileNotFoundError:
        # Written last of all: without it the session never came to its end.
        return None
    except msgspec.MsgspecError as error:
        raise Refusal(ExitCode.CORRUPT, f"{path}: is not the evidence of a session: {error}") from (
            error
        )
    if expected is not None:
        _refuse_others(path, evidence, expected)
    if evidence.refusal is not None:
        return Kept(directory, evidence, None, None)
    record = directory / RECORD
    try:
        checked = check(read_plain(record).decode("utf-8"), str(record))
    except FileNotFoundError as error:
        raise Refusal(
            ExitCode.CORRUPT, f"{record}: is missing, and {path} says that the session recorded"
        ) from error
    except UnicodeDecodeError as error:
        raise Refusal(
            ExitCode.CORRUPT, f"{record}: is not UTF-8 (byte {error.start + 1})"
        ) from error
    if len(checked.events) != 1:
        raise Refusal(ExitCode.CORRUPT, f"{record}: holds {len(checked.events)} events, not one")
    event, identity = checked.events[0], checked.identity
    for member, said, states in (
        ("probe", event.probe, evidence.probe),
        ("session", event.session, evidence.session),
        ("tier", identity.tier, evidence.tier),
        ("arm", identity.arm, evidence.arm),
    ):
        if said != states:
            raise Refusal(
                ExitCode.CORRUPT, f"{record}: {member} is {said!r}, and {path} says {states!r}"
            )
    _refuse_another_event(directory, event)
    _refuse_underived(directory, evidence, event, expected)
    return Kept(directory, evidence, identity, event)


def hold_to_digests(directory: Path, end: SessionEnd) -> None:
    """Refusal 19 for a file of a session that is not as it was when the session ended."""
    found = dict(_digests(directory, ""))
    for name in sorted({*found, *end.files}):
        path = directory / name
        if name not in found:
            raise Refusal(
                ExitCode.CORRUPT, f"{path}: is missing, and was there when the session ended"
            )
        if name not in end.files:
            raise Refusal(
                ExitCode.CORRUPT, f"{path}: was not there when the session ended: move it away"
            )
        if found[name] != end.files[name]:
            raise Refusal(
                ExitCode.CORRUPT,
                f"{path}: is {found[name]}, and was {end.files[name]} when the session ended: it "
                "was changed after the session",
            )


def _digests(directory: Path, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in directory.iterdir():
        refuse_link(entry)
        if entry.is_dir():
            yield from _digests(entry, f"{prefix}{entry.name}/")
        else:
            with open_plain(entry) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            yield f"{prefix}{entry.name}", f"sha256:{digest}"


def _refuse_others(path: Path, evidence: Evidence, expected: Expected) -> None:
    for member in ("session", "probe", "tier", "arm"):
        said, due = getattr(evidence, member), getattr(expected, member)
        if said != due:
            raise Refusal(
                ExitCode.CORRUPT,
                f"{path}: {member} is {said!r}, and the batch put {due!r} here: this is another "
                "session",
            )


def _refuse_another_event(directory: Path, event: Event) -> None:
    path = directory / EVENT
    try:
        written = path.read_bytes()
    except OSError as error:
        raise Refusal(
            ExitCode.CORRUPT, f"{path}: {error.strerror}, and the session recorded"
        ) from error
    if written != event_yaml(event).encode():
        raise Refusal(ExitCode.CORRUPT, f"{path}: is not the event of {directory / RECORD}")


def _refuse_underived(
    directory: Path, evidence: Evidence, event: Event, expected: Expected | None
) -> None:
    """Hold calls and answer against the stream; what was produced needs the workspace.

    The answer is held only where the probe's closed set is known.
    """
    record, raw = directory / RECORD, directory / RAW
    try:
        observation = observe(_chunks(raw))
    except OSError as error:
        raise Refusal(
            ExitCode.CORRUPT, f"{raw}: {error.strerror}, and the session recorded"
        ) from error
    faults = whole_faults(observation, True, str(raw))
    if faults:
        raise Refusal(ExitCode.CORRUPT, *faults)
    places = places_of(observation, (WORKSPACE,), (CONFIGURATION_DIRECTORY,))
    derived = build_event(
        observation,
        probe=evidence.probe,
        session=evidence.session,
        document_digest=lambda path: evidence.document_digests.get(places.place(path), ""),
        produced=None,
        answers=None if expected is None else expected.answers,
    )
    if derived.calls != event.calls:
        raise Refusal(
            ExitCode.CORRUPT,
            f"{record}: its calls are not those that {raw} and the document digests of "
            f"{directory / EVIDENCE} give: it was changed after the session",
        )
    if expected is not None and derived.answer != event.answer:
        raise Refusal(
            ExitCode.CORRUPT,
            f"{record}: its answer is {event.answer!r} and {raw} gives {derived.answer!r}: it was "
            "changed after the session",
        )


def _chunks(path: Path) -> Iterator[bytes]:
    with open_plain(path) as file:
        while chunk := file.read(READ_SIZE):
            yield chunk


@dataclass(frozen=True)
class LineStanding:
    """A line of a batch by its ledger, of ``planned`` sessions; each list in the plan's order.

    ``failed`` are sessions that did not record, each with its exit code; ``left_out`` those that a
    person gave up; ``uncertain`` those that wait for a decision. The rest has yet to run.
    ``earlier`` counts attempts that others followed.
    """

    name: str
    planned: int
    recorded: int
    failed: tuple[tuple[str, int], ...] = ()
    left_out: tuple[str, ...] = ()
    uncertain: tuple[str, ...] = ()
    earlier: int = 0

    @property
    def whole(self) -> bool:
        """Whether every session that is to record has: a failed one may still be run again."""
        return self.recorded + len(self.left_out) == self.planned


def line_standing(name: str, sessions: Sequence[str], state: State) -> LineStanding:
    """How a line stands; ``sessions`` are its own, in the plan's order."""
    standings = {session: state.standing(session) for session in sessions}
    latest = {session: state.latest(session) for session in sessions}

    def of(standing: Standing) -> tuple[str, ...]:
        return tuple(session for session in sessions if standings[session] == standing)

    return LineStanding(
        name=name,
        planned=len(sessions),
        recorded=len(of("recorded")),
        failed=tuple(
            (session, attempt.end.code)
            for session in of("failed")
            if (attempt := latest[session]) is not None and attempt.end is not None
        ),
        left_out=of("left-out"),
        uncertain=tuple(
            session
            for session in of("unended")
            if (attempt := latest[session]) is not None and attempt.requests != 0
        ),
        earlier=sum(max(0, len(state.sessions.get(session, ())) - 1) for session in sessions),
    )


def assemble(line: LineStanding, sessions: Sequence[Kept]) -> str:
    """One line's transcript: the identity they agree on, every event, prose from the evidence.

    ``sessions`` are those that recorded, in the plan's order. ``at`` is the earliest,
    ``cost_cents`` the sum. It is a draft while the line is not whole, and where it was rehearsed.
    Refusal 19 where the sessions disagree on another member: they are not of one line.
    """
    identities = [kept.identity for kept in sessions if kept.identity is not None]
    events = [kept.event for kept in sessions if kept.event is not None]
    if len(events) != len(sessions) or not sessions:
        raise Refusal(
            ExitCode.FAILED, f"{line.name}: {len(sessions) - len(events)} sessions did not record"
        )
    first = identities[0]
    for kept, identity in zip(sessions, identities, strict=True):
        for key, value in structs.asdict(identity).items():
            if key not in ("at", "cost_cents") and value != getattr(first, key):
                raise Refusal(
                    ExitCode.CORRUPT,
                    f"{kept.directory / RECORD}: {key} is {value!r} and {getattr(first, key)!r} in "
                    f"{sessions[0].directory / RECORD}: these are not sessions of one line",
                )
    identity = structs.replace(
        first,
        at=min(identity.at for identity in identities),
        cost_cents=sum(identity.cost_cents for identity in identities),
    )
    last = max(each.at for each in identities)
    evidence = [kept.evidence for kept in sessions]
    rehearsed = identity.model.startswith(REHEARSAL_PREFIX)
    number = line.name.partition("-")[0].removeprefix("L")
    title = f"Run of {identity.at}, {identity.tier} tier, {identity.arm} arm, line {number}"
    front = {
        "id": f"RUN-{line.name}-of-{identity.at}",
        "status": "current" if line.whole and not rehearsed else "draft",
        "status_since": last,
        "summary": summary_of(line, identity, evidence),
        "last_verified": last,
        "tier": identity.tier,
        "arm": identity.arm,
        "title": title,
    }
    if rehearsed:
        front["rehearsal"] = "not a measurement"
    prose = (*statements(evidence), line_statement(line))
    return transcript_markdown(title, front, identity, prose, events)


def summary_of(line: LineStanding, identity: Identity, evidence: Sequence[Evidence]) -> str:
    """One sentence with every count; a session in which something was not counted is told."""
    outside = [each.counts.outside_paths for each in evidence]
    web = [each.counts.web_calls for each in evidence]
    uncounted = line.planned - line.recorded
    uncounted += sum(None in counted for counted in zip(outside, web, strict=True))
    foreign = [each.corroboration.foreign for each in evidence if each.corroboration is not None]
    fetches = sum(fetch.count for each in evidence for fetch in each.egress.fetches)
    named = sum(len(each) for each in outside if each is not None)
    counts = (
        f"{line.recorded} of {line.planned} sessions",
        f"{identity.cost_cents} cents",
        f"{sum(each.capped for each in evidence)} stopped at the turn cap",
        f"{named} paths outside the workspace named",
        f"{uncounted} sessions uncounted",
        f"{sum(calls for calls in web if calls is not None)} web-tool calls",
        f"{fetches} provider fetches refused",
        f"{sum(map(len, foreign))} foreign answers",
    )
    return (
        f"The {identity.arm} arm of the {identity.tier} tier, on {identity.served_version}: "
        f"{', '.join(counts)}."
    )


def line_statement(line: LineStanding) -> str:
    """What the line's ledger says of its sessions, those that are no part of the transcript too."""
    said = [f"{line.recorded} of {_sessions(line.planned)} that were planned recorded."]
    if line.failed:
        named = ", ".join(f"`{session}` (exit {code})" for session, code in line.failed)
        said.append(f"{_sessions(len(line.failed))} failed to record: {named}.")
    if line.left_out:
        named = ", ".join(f"`{session}`" for session in line.left_out)
        said.append(
            f"{_sessions(len(line.left_out))} had no end and a person left out, with a reason that "
            f"the ledger holds: {named}."
        )
    if line.uncertain:
        named = ", ".join(f"`{session}`" for session in line.uncertain)
        said.append(f"{_sessions(len(line.uncertain))} have no end and wait: {named}.")
    rest = line.planned - line.recorded - len(line.failed) - len(line.left_out)
    rest -= len(line.uncertain)
    if rest:
        said.append(f"{_sessions(rest)} have not run.")
    if line.recorded < line.planned:
        said.append("None of these is counted in a sum of this transcript.")
    if line.earlier:
        attempts = "1 attempt was" if line.earlier == 1 else f"{line.earlier} attempts were"
        said.append(f"{attempts} followed by another, which alone is part of this transcript.")
    return f"**The sessions.** {' '.join(said)}"


def _sessions(count: int) -> str:
    return "1 session" if count == 1 else f"{count} sessions"
