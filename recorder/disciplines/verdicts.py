"""From judgments to verdicts: one for each entry and observation, and its row in the log.

Over the worlds that a scope admits, the first that is broken or cannot be judged wins. What was
skipped is never part of a pass: an observation of which one world was skipped did not pass.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from recorder.disciplines.declaration import Declaration, Entry, Level
from recorder.disciplines.judging import (
    Break,
    Broken,
    Memo,
    NotApplicable,
    NotObserved,
    Passed,
    Unjudgeable,
    World,
    admits,
    judge,
    scope_admits,
)
from recorder.disciplines.values import ABSENT, text_of

Event = Literal["passed", "blocked", "witnessed", "advised", "skipped", "unattributed"]
Skip = Literal["no-observation", "config-fault", "supply-pass"]

WITNESSES = 8
FIFTH_LIMIT = 200
CUT_MARK = "…"


# Made once: to make an encoder costs as much as to encode a row.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=text_of).encode


@dataclass(frozen=True, slots=True)
class Surface:
    """Where observations come from, and what they can show.

    ``level`` is the observer's own; None where the surface has none. ``change_set``: the whole of
    a change is one observation. ``session``: there is a history and a record of spawns.
    """

    name: str
    level: Level | None
    change_set: bool
    session: bool


RECORDED_CALL = Surface("session", None, change_set=False, session=True)
RECORDED_SESSION = Surface("whole session", None, change_set=True, session=True)
HOOK = Surface("hook", None, change_set=False, session=True)


def git_surface(level: Level | None) -> Surface:
    return Surface("git", level, change_set=True, session=False)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One entry over one observation.

    ``breaks`` are the broken world's; ``skip`` says why it was skipped; ``unjudgeable`` which
    source could not be read, and why. ``why`` is the entry's.
    """

    entry: str
    event: Event
    subject: str
    breaks: tuple[Break, ...] = ()
    skip: Skip | None = None
    unjudgeable: str | None = None
    why: str | None = None

    @property
    def broken(self) -> bool:
        """A relation failed and no witness opened it."""
        return bool(self.breaks) and self.event != "witnessed"

    @property
    def message(self) -> str | None:
        """What is said of it in one line, where there is something to say."""
        if self.breaks:
            why = f" — why: {folded(self.why)}" if self.why else ""
            said = folded(self.breaks[0].message)
            return f"discipline '{self.entry}' broken on {self.subject}: {said}{why}"
        if self.unjudgeable is not None:
            return (
                f"discipline '{self.entry}' cannot be judged on {self.subject}: {self.unjudgeable}"
            )
        return None

    @property
    def fifth(self) -> str | None:
        if self.event == "skipped":
            return self.skip
        if not self.breaks:
            return None
        listed = [
            {
                "id": each.id,
                "witnesses": [_witness(violator) for violator in each.violators[:WITNESSES]],
                "total": len(each.violators),
            }
            for each in self.breaks
        ]
        text = _encode(listed)
        return text if len(text) <= FIFTH_LIMIT else text[:FIFTH_LIMIT] + CUT_MARK


def _witness(violator: Any) -> dict[str, Any]:
    found = {"key": violator.key}
    if violator.value is not ABSENT:
        found["value"] = violator.value
    if violator.side is not None:
        found["side"] = violator.side
    return found


def folded(text: str) -> str:
    """A text as one line."""
    return " ".join(text.split())


def row(at_ms: float, event: str, label: str, subject: str, fifth: str | None) -> str:
    """A line of the log without its end: timestamp, event, label, subject and perhaps a fifth."""
    at = datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)
    stamp = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    fields = [stamp, event, label, subject, *(() if fifth is None else (fifth,))]
    return "\t".join(map(one_field, fields))


def row_of(at_ms: float, verdict: Verdict) -> str:
    """A verdict's row."""
    return row(at_ms, verdict.event, verdict.entry, verdict.subject, verdict.fifth)


_BREAKING = str.maketrans(dict.fromkeys("\t\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", " "))


def one_field(text: str) -> str:
    """A field without what ends one, or a line. Half a surrogate pair cannot be written."""
    return text.translate(_BREAKING).encode("utf-8", "replace").decode("utf-8")


def level_of(entry: Entry, surface: Surface) -> Level:
    """The lenient of the entry's level and the surface's; an entry without one advises."""
    if entry.enforce != "block" or surface.level == "advise":
        return "advise"
    return "block"


def verdict_of(
    entry: Entry, worlds: Sequence[World], surface: Surface, memo: Memo | None = None
) -> Verdict | None:
    """The verdict over one observation's worlds; None where the scope admits none of them."""
    declaration = entry.declaration
    if declaration is None:
        for world in worlds:
            if scope_admits(entry.scope, world):
                return Verdict(entry.id, "skipped", world.subject, skip="config-fault")
        return None
    passed: World | None = None
    skipped: tuple[World, Skip] | None = None
    opened: tuple[World, Broken] | None = None
    not_on = _not_on(declaration, surface)
    for world in worlds:
        if not_on is not None:
            if admits(declaration, world, memo):
                return Verdict(entry.id, "skipped", world.subject, skip=not_on)
            continue
        judgment = judge(declaration, world, memo)
        match judgment:
            case NotApplicable(reason="scope"):
                continue
            case NotApplicable():
                skipped = skipped or (world, "supply-pass")
            case NotObserved():
                skipped = skipped or (world, "no-observation")
            case Passed():
                passed = passed or world
            case Broken(opened=True):
                opened = opened or (world, judgment)
            case Unjudgeable() | Broken():
                return _stopped(entry, world, judgment, surface)
    if opened is not None:
        return Verdict(entry.id, "witnessed", opened[0].subject, opened[1].breaks, why=entry.why)
    if skipped is not None:
        return Verdict(entry.id, "skipped", skipped[0].subject, skip=skipped[1])
    return None if passed is None else Verdict(entry.id, "passed", passed.subject)


def _not_on(declaration: Declaration, surface: Surface) -> Skip | None:
    """Why a surface cannot judge a declaration at all; None where it can."""
    if declaration.reads_changes and not surface.change_set:
        return "no-observation"
    if not surface.session:
        source = declaration.reads_kind("transcript", "sidecar")
        if source is not None:
            return "supply-pass" if declaration.policy(source) == "pass" else "no-observation"
    return None


def _stopped(
    entry: Entry, world: World, judgment: Unjudgeable | Broken, surface: Surface
) -> Verdict:
    if isinstance(judgment, Unjudgeable):
        said = f"{judgment.source} {judgment.why}"
        return Verdict(entry.id, "blocked", world.subject, unjudgeable=said, why=entry.why)
    event: Event = "blocked" if level_of(entry, surface) == "block" else "advised"
    return Verdict(entry.id, event, world.subject, judgment.breaks, why=entry.why)


def verdicts_of(
    entries: Iterable[Entry], worlds: Sequence[World], surface: Surface, memo: Memo | None = None
) -> tuple[Verdict, ...]:
    """Every entry's verdict over one observation, of those that have one."""
    memo = memo if memo is not None else Memo()
    found = (
        verdict_of(entry, worlds, surface, memo) for entry in _candidates(entries, worlds, memo)
    )
    return tuple(verdict for verdict in found if verdict is not None)


def _candidates(entries: Iterable[Entry], worlds: Sequence[World], memo: Memo) -> Sequence[Entry]:
    """The entries less those that admit none of the worlds by their path or their command."""
    listed = tuple(entries)
    paths = tuple(world.path for world in worlds)
    commands = any(world.command is not ABSENT for world in worlds)
    key = (listed, paths, commands)
    known = memo.candidates.get(key)
    if known is None:
        known = memo.candidates[key] = tuple(
            entry for entry in listed if _may_admit(entry, worlds, commands, memo)
        )
    return known


def _may_admit(entry: Entry, worlds: Sequence[World], commands: bool, memo: Memo) -> bool:
    declaration = entry.declaration
    if declaration is None or declaration.scope is None:
        return True
    match declaration.scope.source:
        case "target.path":
            return any(admits(declaration, world, memo) for world in worlds)
        case "command":
            return commands
        case _:
            return True
