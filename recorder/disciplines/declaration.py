"""A declaration as types: what was loaded and held to the table of mechanisms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from recorder.disciplines.catalogue import FIXED_SOURCES, Mechanism
from recorder.disciplines.patterns import Pattern
from recorder.disciplines.relations import RelationKind
from recorder.disciplines.steps import Run

Level = Literal["block", "advise"]
Policy = Literal["error", "pass", "empty"]
BindingKind = Literal["file", "sidecar", "transcript"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a file something stands. ``line`` and ``column`` start at 1."""

    name: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.name}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Binding:
    """What a declaration's own source name stands for. ``path``: of a file alone."""

    kind: BindingKind
    path: str = ""


@dataclass(frozen=True, eq=False, slots=True)
class Scope:
    """Which worlds are admitted: the text of ``source`` by unanchored patterns."""

    source: str
    include: tuple[Pattern, ...] = ()
    exclude: tuple[Pattern, ...] = ()

    def admits(self, text: str) -> bool:
        if self.include and not any(pattern.matches(text) for pattern in self.include):
            return False
        return not any(pattern.matches(text) for pattern in self.exclude)

    def is_free(self, text: str) -> bool:
        """Whether a text is so short that no pattern needs a bound on its time."""
        return all(len(text) <= pattern.free for pattern in (*self.include, *self.exclude))


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """One step of a pipeline. Pipelines that begin alike share the step objects of that start."""

    op: str
    run: Run


@dataclass(frozen=True, slots=True)
class Combination:
    op: str
    left: str
    right: str


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A named extraction. It starts with ``source`` or with ``combination``, never both.

    ``root`` is the source that is named where a step cannot read what it gets. ``paired``: it
    runs once for each side of ``state``.
    """

    name: str
    source: str | None
    combination: Combination | None
    steps: tuple[Step, ...]
    root: str
    paired: bool


@dataclass(frozen=True, slots=True)
class Relate:
    """One relation over extractions, and what is said where it fails."""

    id: str
    kind: RelationKind
    left: str
    right: str | None
    strict: bool
    message: str | None
    left_message: str | None = None
    right_message: str | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Block:
    """``extract`` in declared order. A witness's block holds the body's extractions too."""

    extract: Mapping[str, Pipeline]
    relate: tuple[Relate, ...]


@dataclass(frozen=True, eq=False)
class Declaration:
    """One judgment as data. ``reads``: the source names of the body's ``source`` steps."""

    mechanism: Mechanism
    scope: Scope | None
    sources: Mapping[str, Binding]
    supply: Mapping[str, Policy]
    body: Block
    witness: Block | None
    reads: frozenset[str]
    witness_reads: frozenset[str] = frozenset()
    reads_changes: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reads_changes", "changes" in self.reads)

    def policy(self, source: str) -> Policy:
        return self.supply.get(source, "error")

    def reads_kind(self, *kinds: BindingKind) -> str | None:
        """The first source of the body bound to one of the kinds, or None."""
        for name, binding in self.sources.items():
            if name in self.reads and name not in FIXED_SOURCES and binding.kind in kinds:
                return name
        return None


@dataclass(frozen=True, eq=False)
class Entry:
    """One discipline. ``declaration`` is None where its block could not be resolved: ``fault``
    says where and why, and ``scope`` what was still understood."""

    id: str
    why: str | None
    enforce: Level | None
    declaration: Declaration | None
    place: Place
    scope: Scope | None = None
    fault: str | None = None


@dataclass(frozen=True)
class Draft:
    """A practice in prose: no judgment, no row."""

    id: str
    why: str
    place: Place


@dataclass(frozen=True)
class Disciplines:
    """A file of disciplines. ``digest`` is ``sha256:<hex>`` of its bytes; ``protected`` are the
    paths that no call may change."""

    name: str
    digest: str
    entries: tuple[Entry, ...]
    drafts: tuple[Draft, ...] = ()
    protected: tuple[str, ...] = ()

    @property
    def faults(self) -> tuple[str, ...]:
        return tuple(entry.fault for entry in self.entries if entry.fault is not None)
