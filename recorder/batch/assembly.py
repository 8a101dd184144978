"""From the sessions of a line to its transcript. Pure but for reading the sessions' own files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import structs

from recorder.evidence.document import Evidence
from recorder.evidence.prose import statements
from recorder.refusal import ExitCode, Refusal
from recorder.transcript.checker import check
from recorder.transcript.contract import REHEARSAL_PREFIX, Event, Identity
from recorder.transcript.writer import transcript_markdown

EVIDENCE = "evidence.json"
RECORD = "record.md"


@dataclass(frozen=True)
class Kept:
    """One session as its directory holds it. ``identity`` and ``event`` are None when refused."""

    directory: Path
    evidence: Evidence
    identity: Identity | None
    event: Event | None


def read_session(directory: Path) -> Kept | None:
    """The session of a directory; None where none ended there. Refusal 19 for a broken file."""
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
    if evidence.refusal is not None:
        return Kept(directory, evidence, None, None)
    record = directory / RECORD
    try:
        checked = check(record.read_text("utf-8"), str(record))
    except FileNotFoundError as error:
        raise Refusal(
            ExitCode.CORRUPT, f"{record}: is missing, and {path} says that the session recorded"
        ) from error
    return Kept(directory, evidence, checked.identity, checked.events[0])


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
