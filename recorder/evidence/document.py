"""evidence.json: how one session was recorded, as data. No later step reads prose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from recorder.evidence.egress import Asked, Bound, Fetch

SCHEMA = "recorder.evidence/1"
MASK = "(masked)"


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted in the stream; None where it was not read whole, which is not 0."""

    lines: int
    bytes: int
    calls: int
    mcp_calls: int | None
    web_calls: int | None
    command_lifecycle_lines: int
    outside_paths: tuple[str, ...] | None
    hook_events: Mapping[str, int]
    dropped_blocks: Mapping[str, int]


class Left(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    why: str


class Workspace(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison with the arm's manifest. ``removed`` is None where the end was not read."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    mode_changed: tuple[str, ...]
    removed: tuple[str, ...] | None
    excluded: tuple[Left, ...]
    left: tuple[Left, ...]
    not_read: tuple[Left, ...]
    stopped: str | None


class Egress(msgspec.Struct, frozen=True, kw_only=True):
    """``faults``: every reason not to believe the log; None where there is no log at all.

    ``host`` is the one that is forwarded to. Of ``refused``, ``fetches`` asked the provider to
    reach out, and ``not_forwarded`` are other requests to that host that did not pass. ``bound`` is
    what the session used up, after which nothing of it was let out; None where it met none.
    """

    host: str
    allowed: tuple[Asked, ...]
    refused: tuple[Asked, ...]
    fetches: tuple[Fetch, ...]
    not_forwarded: int
    faults: tuple[str, ...] | None
    policy: str
    bound: Bound | None = None


class Attach(msgspec.Struct, frozen=True, kw_only=True):
    """How the stream was read: what a reader checks the channel against."""

    query: str
    before_start: bool
    standard_input_once: bool
    engine_log: str


class ForeignRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that no conversation of the harness explains. ``used``: its answer was shown."""

    request: int
    model: str | None
    session: str | None
    used: bool
    why: str


class CostRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars as decimal text; None is unknown. ``difference`` is a part of the harness's figure.

    ``differs``: the price table and the harness are more than 1 % apart.
    """

    harness: str | None
    table: str | None
    foreign: str | None
    difference: str | None
    differs: bool
    table_date: str
    unknown_models: tuple[str, ...]


class CorroborationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The join of the stream with the egress log; ``recorder.evidence.corroboration`` says how.

    ``only_at_provider`` counts, by reason, the answers that the stream does not show.
    """

    agrees: bool
    blocks: int
    corroborated: int
    normalised: Mapping[str, int]
    results: int
    texts: int
    unconfirmed: int
    unseen_texts: int
    not_shown: int
    thoughts_not_told: int
    own_words: int
    requests: int
    used: int
    only_at_provider: Mapping[str, int]
    token_counts: int
    foreign: tuple[ForeignRequest, ...]
    tools_changed: int
    hooks_that_changed_a_call: int
    cost: CostRecord
    findings: tuple[str, ...]
    hooks_that_changed_a_result: int = 0


class CheckRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The check behind findings. ``baseline`` is the digest of the manifest its tools come from.

    ``over``: ``workspace`` or ``corpus``, what it read. ``exit_code`` is None where it did not
    run or did not come to its own end, ``findings`` (how many) where it came to no result, and
    ``fault`` says why not; with none of the three nothing was there to be checked.
    """

    command: tuple[str, ...]
    over: str
    baseline: str
    exit_code: int | None
    timed_out: bool
    findings: int | None
    fault: str | None


class DisciplinesRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The disciplines behind findings: their file in the corpus, and its digest.

    ``entries`` are those that judge an artifact. ``judged`` artifacts have come to a list and
    ``findings`` counts what is in them; both are None where the workspace was not read whole.
    ``not_judged`` are artifacts that an entry admits and could not judge, which have no list.
    """

    file: str
    digest: str
    entries: tuple[str, ...]
    judged: int | None
    not_judged: tuple[str, ...]
    findings: int | None


class CredentialRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How the session held its credential: ``form`` as the harness has it, a placeholder or not.

    ``copied``: the host's own file was copied in; else nothing of the credential reached it.
    """

    form: str
    copied: bool


class RefusalRecord(msgspec.Struct, frozen=True, kw_only=True):
    code: int
    reasons: tuple[str, ...]


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One session's evidence. Names of environment variables only; inspect output masked."""

    schema: str
    recorder: str
    probe: str
    session: str
    tier: str
    arm: str
    rehearsal: bool
    argv: tuple[str, ...]
    environment: tuple[str, ...]
    pinned: tuple[str, ...]
    attach: Attach
    ended: str
    exit_status: int | None
    guard: Mapping[str, Any] | None
    harness_version: str | None
    sidecar: Mapping[str, str]
    session_container: Mapping[str, Any]
    sidecar_container: Mapping[str, Any]
    counts: Counts
    document_digests: Mapping[str, str]
    workspace: Workspace | None
    egress: Egress
    credential: CredentialRecord | None = None
    corroboration: CorroborationRecord | None = None
    check: CheckRecord | None = None
    disciplines: DisciplinesRecord | None = None
    hook_log_lines: int | None
    seconds: Mapping[str, float | None]
    max_turns: int | None
    capped: bool
    arm_delta: tuple[str, ...]
    arm_declared: tuple[str, ...]
    not_enforced: tuple[str, ...]
    refusal: RefusalRecord | None


def masked(inspect: Mapping[str, Any]) -> dict[str, Any]:
    """An engine's inspect output without values of the environment and without long profiles.

    No secret is in it to begin with: the credential goes to the sidecar on its standard input.
    """
    copy: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(inspect))
    configuration = copy.get("Config") or {}
    configuration["Env"] = [
        f"{entry.partition('=')[0]}={MASK}" for entry in configuration.get("Env") or ()
    ]
    return copy


def encode_evidence(evidence: Evidence) -> bytes:
    """The document's bytes: keys in declared order, two spaces, a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(evidence), indent=2) + b"\n"
