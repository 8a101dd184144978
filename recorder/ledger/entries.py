"""The lines of ledger.jsonl, one struct a kind. Pure.

Members stand in JSON as they are named here, in camel case. Dollars are decimal text, never a
float. ``ts`` is in milliseconds since 1970; ``run`` counts the drivers of the batch from 1;
``sequence`` is the line's own number; ``previous`` the digest of the line before it. The writer
stamps these four: 0 is a line that was not written yet.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

import msgspec

START = "sha256:" + "0" * 64
"""What the first line has in ``previous``."""

Billing = Literal["api", "subscription", "unknown"]
Choice = Literal["again", "leave-out"]
Why = Literal["first", "unspent", "rehearsal", "retry", "halted", "decided"]
"""Why an attempt runs: it is the first; the one before spent nothing, or was a rehearsal without an
end; ``--retry failed``; ``--wait`` after a limit or an outage that ended it; or a person decided
it."""


class Reported(msgspec.Struct, frozen=True, tag_field="kind", tag="reported"):
    """The harness's own figure."""

    usd: Decimal


class Estimated(msgspec.Struct, frozen=True, tag_field="kind", tag="estimated"):
    """Tokens at the price table's rates. ``entries``: the models whose rates were used."""

    usd: Decimal
    entries: tuple[str, ...]


class Unknown(msgspec.Struct, frozen=True, tag_field="kind", tag="unknown"):
    """No figure, which is never 0. ``models``: those that have none, where they are known."""

    models: tuple[str, ...] = ()


Cost = Reported | Estimated | Unknown


class _Member(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of a line."""


class Tokens(_Member, frozen=True, kw_only=True):
    """``input`` are fresh ones: neither written to the cache nor read from it."""

    input: int
    output: int
    cache_write: int
    cache_read: int


class Caps(_Member, frozen=True, kw_only=True):
    """What a batch may spend, in dollars; None: no such cap. ``tiers`` are the tiers' ceilings."""

    batch: Decimal | None
    session: Decimal | None
    tiers: dict[str, Decimal]


class FileChange(_Member, frozen=True, kw_only=True):
    """A file of the workspace that a session changed; of binary ones no line is counted."""

    path: str
    added: int
    removed: int


class Totals(_Member, frozen=True, kw_only=True):
    """A batch as it stands. ``usd`` is every figure added up, each attempt's once.

    ``unknown_calls`` are attempts that may have spent and have no figure; ``unmeasured_calls``
    those without tokens. ``remaining`` sessions have no attempt that counts.
    """

    recorded: int
    failed: int
    left_out: int
    uncertain: int
    remaining: int
    attempts: int
    usd: Decimal
    reported_usd: Decimal
    estimated_usd: Decimal
    unknown_calls: int
    unknown_models: tuple[str, ...]
    tokens: Tokens
    unmeasured_calls: int


class Entry(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    rename="camel",
    forbid_unknown_fields=True,
):
    """What every line has."""

    ts: int = 0
    run: int = 0
    sequence: int = 0
    previous: str = ""


class RunStart(Entry, frozen=True, kw_only=True, tag="run:start"):
    """A driver began. ``batch`` is the digest of batch.json, ``jobs`` the sessions in all.

    ``canary``: so many of them run first and wait for a person; None: it was asked for none.
    """

    recorder: str
    batch: str
    jobs: int
    parallel: int
    caps: Caps
    canary: int | None = None


class LedgerCut(Entry, frozen=True, kw_only=True, tag="ledger:cut"):
    """A last line that was written in part was cut off: so many bytes, of this digest."""

    bytes: int
    sha256: str


class SessionStart(Entry, frozen=True, kw_only=True, tag="session:start"):
    """Written before the session's container is made: from here on it may spend.

    ``slot`` is its place among those that run at once, from 0, and ``uid`` that place's own.
    ``reserved``: dollars that are held for it until it ends; None where nothing states a figure.
    """

    session: str
    attempt: int
    why: Why
    slot: int
    uid: int
    reserved: Decimal | None


class SessionEgress(Entry, frozen=True, kw_only=True, tag="session:egress"):
    """What the egress log of an attempt without an end says, before anything of it is cleaned up.

    ``sha256`` is None where there is no log. ``whole``: it has its closing line. ``requests`` that
    reached the provider: None where the log does not decide it.
    """

    session: str
    attempt: int
    sha256: str | None
    whole: bool
    requests: int | None
    cost: Cost
    tokens: Tokens | None


class SessionChange(Entry, frozen=True, kw_only=True, tag="session:change"):
    """The files that a session changed; there is none of a workspace that was not read whole."""

    session: str
    attempt: int
    files: tuple[FileChange, ...]


class SessionEnd(Entry, frozen=True, kw_only=True, tag="session:end"):
    """An attempt's end, written when its files are durable.

    ``code`` is the refusal's exit code, 0 for a session that recorded. ``failure``: the harness's
    own word for its failure, such as ``429`` or ``error_during_execution``; None where it did not
    fail or said nothing. ``requests`` that reached the provider: None where no log decides it.
    ``files``: every file of the session's directory with its digest.
    """

    session: str
    attempt: int
    outcome: Literal["recorded", "refused"]
    code: int
    capped: bool
    failure: str | None
    cost: Cost
    billing: Billing
    tokens: Tokens | None
    requests: int | None
    duration_ms: int
    files: dict[str, str]


class SessionDecision(Entry, frozen=True, kw_only=True, tag="session:decision"):
    """What a person decided about one attempt without an end, and no other. ``cost``: as known."""

    session: str
    attempt: int
    decision: Choice
    reason: str
    cost: Cost


class Heartbeat(Entry, frozen=True, kw_only=True, tag="heartbeat"):
    """The driver lives. ``running``: sessions at that moment."""

    running: int


class RunHalt(Entry, frozen=True, kw_only=True, tag="run:halt"):
    """Nothing more is started. ``rule`` says why; ``until``: when it passes, in milliseconds.

    ``session`` is the one whose latest attempt met it; None where no single one did.
    """

    rule: str
    session: str | None
    until: int | None


class RunAbort(Entry, frozen=True, kw_only=True, tag="run:abort"):
    """A signal ends the driver; written before anything else is done about it."""

    signal: str


class RunEnd(Entry, frozen=True, kw_only=True, tag="run:end"):
    """A driver came to its end. ``code``: the exit code that the batch stands at."""

    code: int
    totals: Totals


class BatchAccept(Entry, frozen=True, kw_only=True, tag="batch:accept"):
    """A person accepted the canary: ``sessions`` of it had ended."""

    sessions: tuple[str, ...]
    reason: str | None


Line = (
    RunStart
    | LedgerCut
    | SessionStart
    | SessionEgress
    | SessionChange
    | SessionEnd
    | SessionDecision
    | Heartbeat
    | RunHalt
    | RunAbort
    | RunEnd
    | BatchAccept
)
