"""The recorder's contract as types: the four closed key sets and the three-state rule.

Source: the recorder contract, "A transcript is two fenced blocks under two headings".
``UNSET`` is an absent key, which is not an empty list and not ``None``: no key says that
nothing watched, ``[]`` says that something watched and saw nothing.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

TIERS = ("regression", "campaign", "documentation")
ARMS = ("present", "absent", "no-hook", "no-skills", "no-claude-md", "mcp")

# A rehearsal never passes for a measurement: its model and served version carry this prefix.
REHEARSAL_PREFIX = "rehearsal/"

Tier = Literal["regression", "campaign", "documentation"]


class Identity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The run identity, twelve keys, every one required, in the order they are written."""

    model: str
    served_version: str
    tree: str
    lock: str
    selection: str
    read_set: str
    seed: int
    harness: str
    tier: str
    arm: str
    at: str
    cost_cents: int


class Call(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tool call. ``result`` is ``sha256:<hex>`` of the document it named, or ``""``."""

    tool: str
    argument: str
    result: str


class Artifact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One produced artifact. ``findings`` is absent where no check read the file."""

    path: str
    result: str
    cites: tuple[str, ...]
    findings: tuple[str, ...] | UnsetType = UNSET


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One session. ``answer`` is ``None`` for a watched session without a declared answer."""

    probe: str
    session: str
    calls: tuple[Call, ...] | UnsetType = UNSET
    produced: tuple[Artifact, ...] | UnsetType = UNSET
    answer: str | UnsetType | None = UNSET
