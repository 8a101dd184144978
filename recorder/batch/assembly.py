"""From the sessions of a line to its transcript. Pure but for reading the sessions' own files.

What a session's directory holds is taken only where its parts say the same: the evidence, the
record, the event, and the stream that the event was made from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import structs

from recorder.evidence.document import Evidence
from recorder.evidence.prose import statements
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
        evidence = msgspec.json.decode(path.read_bytes(), type=Evidence)
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
        checked = check(record.read_text("utf-8"), str(record))
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


def _refuse_others(path: Path, evidence: Evidence, expected: Expected) -> None:
    for member in ("session", "probe", "tier", "arm"):
        said, due = getattr(evidence, member), getattr(expected, member)
        if said != due:
            raise Refusal(
                ExitCode.CORRUPT,
                f"{path}: {member} is {said!r}, and the batch put {due!r} here: this is another "
                "session; move its directory away to run this one",
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
    with path.open("rb") as file:
        while chunk := file.read(READ_SIZE):
            yield chunk


def assemble(title: str, sessions: Sequence[Kept]) -> str:
    """One line's transcript: the identity they agree on, every event, prose from the evidence.

    ``at`` is the earliest, ``cost_cents`` the sum. Refusal 19 where the sessions disagree on
    another member: they are not of one line.
    """
    identities = [kept.identity for kept in sessions if kept.identity is not None]
    events = [kept.event for kept in sessions if kept.event is not None]
    if len(events) != len(sessions) or not sessions:
        raise Refusal(
            ExitCode.FAILED, f"{title}: {len(sessions) - len(events)} sessions did not record"
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
    front = {"tier": identity.tier, "arm": identity.arm}
    if identity.model.startswith(REHEARSAL_PREFIX):
        front["rehearsal"] = "not a measurement"
    return transcript_markdown(
        title, front, identity, statements([kept.evidence for kept in sessions]), events
    )
