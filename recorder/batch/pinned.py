"""batch.json: what a batch pinned before its first session. Pure."""

from __future__ import annotations

import msgspec

from recorder.evidence.pricing import PriceTable
from recorder.transform.cites import DEFAULT_CITES_PATTERN

SCHEMA = "recorder.batch/1"


class PinnedLine(msgspec.Struct, frozen=True, kw_only=True):
    tier: str
    arm: str
    probes: tuple[str, ...]
    repetitions: int
    lock: str
    tree: str
    selection: str
    read_set: str
    seed: int
    harness: str
    manifest: str
    check: str | None = None
    max_turns: int | None = None
    disciplines: str | None = None
    identifiers: str = DEFAULT_CITES_PATTERN


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """batch.json: what a resumed batch must find unmoved. Images by the engine's own id.

    ``policy`` is a digest. ``prices`` is the table of a batch that named one, None for the one that
    is shipped: whoever verifies the batch prices by it.
    """

    schema: str
    recorder: str
    model: str
    seed: int
    rehearsal: str | None
    session_image: str
    sidecar_image: str
    lines: tuple[PinnedLine, ...]
    order: tuple[str, ...]
    credentials: str
    session_dollars: str | None
    harness_version: str | None = None
    policy: str | None = None
    prices: PriceTable | None = None


def encode_pinned(pinned: Pinned) -> bytes:
    """The file's bytes: members in declared order, two spaces, a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(pinned), indent=2) + b"\n"
