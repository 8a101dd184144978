"""What is signed about a batch: an in-toto Statement v1 over every file of it. Pure.

Everything in the predicate is taken from the files that the statement names, so whoever has the
directory makes the same predicate again; the time of signing and the signer's key stand beside it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from recorder.batch.pinned import Pinned
from recorder.evidence.document import Attach, Evidence
from recorder.plain_file import decode

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:recorder:batch-evidence:1"


class Subject(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file by its path inside the batch. ``digest``: ``{"sha256": hex}``."""

    name: str
    digest: dict[str, str]


class Command(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the driver ran and how it read it; ``sessions`` are those that ran so."""

    argv: tuple[str, ...]
    attach: Attach
    network: str
    session_image: str
    sidecar_image: str
    runtime: str
    sessions: tuple[str, ...]


class Construction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The attack list's result before the sessions ran. ``open``: attempts that succeeded.

    ``engine``: facts of the engine and its kernel, by name. ``files``: digests of the guard, the
    forwarder and the harness as the session image holds them. ``recorder_package``: the digest of
    the recorder's own installed files, empty where an earlier recorder did not write it.
    """

    at: str
    session_image: str
    engine: dict[str, str]
    files: dict[str, str]
    attempts: int
    open: tuple[str, ...]
    recorder_package: str = ""


class Refused(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    session: str
    code: int
    reasons: tuple[str, ...]


class Joined(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sums of the sessions' corroboration. ``sessions`` were joined, ``disagreeing`` of them not
    alike."""

    sessions: int
    disagreeing: int
    blocks: int
    corroborated: int
    results: int
    unconfirmed: int
    foreign: int


class Predicate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``limits_not_enforced``: what an engine accepted and did not hold sessions to."""

    recorder: str
    rehearsal: bool
    harness_versions: tuple[str, ...]
    sidecar_versions: tuple[str, ...]
    policies: tuple[str, ...]
    session_image: str
    sidecar_image: str
    limits_not_enforced: tuple[str, ...]
    construction: Construction | None
    commands: tuple[Command, ...]
    sessions: dict[str, int]
    corroboration: Joined
    refusals: tuple[Refused, ...]
    transcripts: tuple[str, ...]
    cost_cents: dict[str, int]
    signed_at: str
    key: str


class Statement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type_: str = msgspec.field(name="_type")
    subject: tuple[Subject, ...]
    predicate_type: str = msgspec.field(name="predicateType")
    predicate: Predicate


class _Construction(msgspec.Struct, frozen=True):
    at: str
    session_image: str
    attempts: tuple[dict[str, Any], ...]
    engine: dict[str, str] = {}
    files: dict[str, str] = {}
    recorder_package: str = ""


def digest_of_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def subjects_of(digests: Mapping[str, str]) -> tuple[Subject, ...]:
    """Every file, sorted by path. ``digests`` are hex."""
    return tuple(Subject(name, {"sha256": digest}) for name, digest in sorted(digests.items()))


def construction_of(data: bytes) -> Construction:
    """The attack list's result as a statement has it. Raises ``msgspec.MsgspecError``."""
    found = decode(data, _Construction)
    return Construction(
        at=found.at,
        session_image=found.session_image,
        engine=found.engine,
        files=found.files,
        attempts=len(found.attempts),
        open=tuple(str(each.get("attempt")) for each in found.attempts if each.get("open")),
        recorder_package=found.recorder_package,
    )


def predicate_of(
    pinned: Pinned,
    planned: Sequence[str],
    sessions: Sequence[Evidence],
    construction: bytes | None,
    costs: Mapping[str, int],
    *,
    signed_at: str,
    key: str,
) -> Predicate:
    """The predicate. ``sessions`` are those that ended, sorted by name; ``costs`` the cents of each
    assembled transcript by its file's name. Raises ``msgspec.MsgspecError`` for a construction
    that cannot be read.
    """
    joined = [e.corroboration for e in sessions if e.corroboration is not None]
    refusals = [(e.session, e.refusal) for e in sessions if e.refusal is not None]
    return Predicate(
        recorder=pinned.recorder,
        rehearsal=pinned.rehearsal is not None or any(e.rehearsal for e in sessions),
        harness_versions=_distinct(e.harness_version for e in sessions),
        sidecar_versions=_distinct(e.sidecar.get("mitmproxy") for e in sessions),
        policies=_distinct(e.egress.policy for e in sessions),
        session_image=pinned.session_image,
        sidecar_image=pinned.sidecar_image,
        limits_not_enforced=_distinct(limit for e in sessions for limit in e.not_enforced),
        construction=None if construction is None else construction_of(construction),
        commands=_commands(sessions),
        sessions={
            "planned": len(planned),
            "recorded": sum(e.refusal is None for e in sessions),
            "capped": sum(e.refusal is None and e.capped for e in sessions),
            "refused": len(refusals),
            "without an end": len(set(planned) - {e.session for e in sessions}),
        },
        corroboration=Joined(
            sessions=len(joined),
            disagreeing=sum(not each.agrees for each in joined),
            blocks=sum(each.blocks for each in joined),
            corroborated=sum(each.corroborated for each in joined),
            results=sum(each.results for each in joined),
            unconfirmed=sum(each.unconfirmed for each in joined),
            foreign=sum(len(each.foreign) for each in joined),
        ),
        refusals=tuple(
            Refused(session=session, code=refusal.code, reasons=refusal.reasons)
            for session, refusal in refusals
        ),
        transcripts=tuple(sorted(costs)),
        cost_cents=dict(sorted(costs.items())),
        signed_at=signed_at,
        key=key,
    )


def statement_bytes(digests: Mapping[str, str], predicate: Predicate) -> bytes:
    """The payload: members in their declared order, no space."""
    return msgspec.json.encode(
        Statement(
            type_=STATEMENT_TYPE,
            subject=subjects_of(digests),
            predicate_type=PREDICATE_TYPE,
            predicate=predicate,
        )
    )


def read_statement(payload: bytes) -> Statement:
    """A payload of ours. Raises ``msgspec.MsgspecError`` for any other."""
    statement = decode(payload, Statement)
    if (statement.type_, statement.predicate_type) != (STATEMENT_TYPE, PREDICATE_TYPE):
        raise msgspec.ValidationError(
            f"it is a {statement.type_} of a {statement.predicate_type}, and not of a batch"
        )
    return statement


def _commands(sessions: Sequence[Evidence]) -> tuple[Command, ...]:
    """Sessions that ran alike, together; in the order of their first."""
    alike: dict[tuple[Any, ...], list[str]] = {}
    first: dict[tuple[Any, ...], Evidence] = {}
    for evidence in sessions:
        key = (evidence.argv, evidence.attach, *_ran_in(evidence))
        alike.setdefault(key, []).append(evidence.session)
        first.setdefault(key, evidence)
    made = []
    for key, names in alike.items():
        network, session_image, sidecar_image, runtime = _ran_in(first[key])
        made.append(
            Command(
                argv=first[key].argv,
                attach=first[key].attach,
                network=network,
                session_image=session_image,
                sidecar_image=sidecar_image,
                runtime=runtime,
                sessions=tuple(names),
            )
        )
    return tuple(made)


def _ran_in(evidence: Evidence) -> tuple[str, str, str, str]:
    host = evidence.session_container.get("HostConfig") or {}
    return (
        str(host.get("NetworkMode", "")),
        str(evidence.session_container.get("Image", "")),
        str(evidence.sidecar_container.get("Image", "")),
        str(host.get("Runtime", "")),
    )


def _distinct(values: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(sorted(Counter(value for value in values if value)))
