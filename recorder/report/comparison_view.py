"""What a comparison of two sides shows, as data. Pure.

Every text in it has gone through ``visible``. Differences are of B less A.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class SideView(msgspec.Struct, frozen=True, kw_only=True):
    """One side. ``sessions`` are those of groups that the other side has too, by ``outcomes``."""

    label: str
    arms: tuple[str, ...]
    rehearsal: bool
    sessions: int
    outcomes: Mapping[str, int]


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A probe of a tier that both sides have; ``arm`` is empty where arms are what is compared."""

    tier: str
    arm: str
    probe: str

    @property
    def name(self) -> str:
        return ", ".join(part for part in (self.probe, self.tier, self.arm) if part)


class Alone(msgspec.Struct, frozen=True, kw_only=True):
    """A group that one side alone has: nothing of it is counted. ``side`` is ``A`` or ``B``."""

    side: str
    group: str
    sessions: int


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """How many of a side's sessions; ``low`` and ``high`` are Wilson's, None for no session."""

    count: int
    total: int
    low: float | None
    high: float | None


class RateDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One rate of a group on both sides. ``low`` and ``high`` are Newcombe's, None with either
    side empty."""

    group: int
    what: str
    a: Share
    b: Share
    difference: float | None
    low: float | None
    high: float | None


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A measure over a side's sessions. ``known`` of them have it and ``unknown`` do not.

    ``low`` and ``high`` are the quartiles; they and ``median`` are None where none has it.
    """

    known: int
    unknown: int
    total: float
    low: float | None
    median: float | None
    high: float | None


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """One measure of a group on both sides; ``difference`` is of the medians."""

    group: int
    name: str
    a: Spread
    b: Spread
    difference: float | None


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a file over a side's sessions: ``sessions`` left it new or changed.

    ``added`` and ``removed`` sum what can be told; ``untold`` sessions kept no text to tell it.
    """

    sessions: int
    added: int
    removed: int
    untold: int


class ChangedFile(msgspec.Struct, frozen=True, kw_only=True):
    group: int
    path: str
    a: Changed
    b: Changed


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """A member that differs; None where a side has no such member."""

    member: str
    a: str | None
    b: str | None


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One session on a chart."""

    side: str
    group: int
    session: str
    dollars: float | None
    seconds: float | None
    calls: int | None


class ComparisonView(msgspec.Struct, frozen=True, kw_only=True):
    """Two sides. ``rehearsal``: a session of either says that it is one."""

    title: str
    rehearsal: bool
    a: SideView
    b: SideView
    groups: tuple[Group, ...]
    alone: tuple[Alone, ...]
    rates: tuple[RateDifference, ...]
    measures: tuple[Measure, ...]
    files: tuple[ChangedFile, ...]
    pins: tuple[Pin, ...]
    points: tuple[Point, ...]
    notes: tuple[str, ...]
    limits: str
