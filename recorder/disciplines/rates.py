"""How often a discipline was broken: by arm, over sessions, with an interval. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from recorder.disciplines.protection import LABEL
from recorder.disciplines.sessions import BatchVerdicts, VerdictRecord
from recorder.report.interval import wilson


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """One discipline in one arm.

    ``judged`` sessions had a verdict that is a judgment (passed, blocked, advised, witnessed);
    ``broken`` of them broke it at least once and no witness opened that. ``unjudgeable``,
    ``skipped`` and ``untouched`` are the other sessions of the arm, each counted once in this
    order, and ``not_judged`` are the sessions that were refused. ``low`` and ``high`` are the
    interval's ends, None where nothing was judged.
    """

    discipline: str
    tier: str
    arm: str
    broken: int
    judged: int
    unjudgeable: int
    skipped: int
    untouched: int
    not_judged: int
    low: float | None
    high: float | None

    @property
    def rate(self) -> float | None:
        return self.broken / self.judged if self.judged else None

    @property
    def others(self) -> int:
        """The sessions that neither broke nor kept it."""
        return self.unjudgeable + self.skipped + self.untouched + self.not_judged


@dataclass(frozen=True, slots=True)
class FirstBreak:
    """The call of a session that first broke a discipline; None for the whole session."""

    session: str
    discipline: str
    call: int | None
    line: int | None
    message: str


# A session's verdicts by discipline; None for one that was not judged.
_Session = dict[str, list[VerdictRecord]] | None

JUDGED = frozenset({"passed", "advised", "witnessed", "blocked"})


def rates_by_arm(batch: BatchVerdicts) -> tuple[Rate, ...]:
    """Every discipline in every line (tier and arm), in the file's order."""
    lines: dict[tuple[str, str], list[_Session]] = {}
    for session in batch.sessions:
        own: _Session = None
        if session.not_judged is None:
            own = {}
            for verdict in session.verdicts:
                own.setdefault(verdict.discipline, []).append(verdict)
        lines.setdefault((session.tier, session.arm), []).append(own)
    return tuple(
        _rate(discipline, tier, arm, sessions)
        for discipline in batch.disciplines
        for (tier, arm), sessions in lines.items()
    )


def _rate(
    discipline: str,
    tier: str,
    arm: str,
    sessions: list[_Session],
) -> Rate:
    counted = dict.fromkeys(("broken", "held", "unjudgeable", "skipped", "untouched"), 0)
    refused = 0
    for session in sessions:
        if session is None:
            refused += 1
            continue
        own = session.get(discipline, [])
        # No row says that a session left every protected path alone.
        kept = discipline == LABEL and not own
        counted["held" if kept else _end(own)] += 1
    judged = counted["broken"] + counted["held"]
    interval = wilson(counted["broken"], judged)
    return Rate(
        discipline=discipline,
        tier=tier,
        arm=arm,
        broken=counted["broken"],
        judged=judged,
        unjudgeable=counted["unjudgeable"],
        skipped=counted["skipped"],
        untouched=counted["untouched"],
        not_judged=refused,
        low=None if interval is None else interval[0],
        high=None if interval is None else interval[1],
    )


def _end(verdicts: list[VerdictRecord]) -> str:
    """What a session comes to. One with a part that nothing judged did not hold to the rule."""
    if any(each.broken for each in verdicts):
        return "broken"
    if any(each.unjudgeable is not None for each in verdicts):
        return "unjudgeable"
    if any(each.event in ("skipped", "unattributed") for each in verdicts):
        return "skipped"
    return "held" if any(each.event in JUDGED for each in verdicts) else "untouched"


def first_breaks(batch: BatchVerdicts) -> tuple[FirstBreak, ...]:
    """Of each session and discipline the first call that broke it."""
    found: dict[tuple[str, str], FirstBreak] = {}
    for session in batch.sessions:
        for each in session.verdicts:
            if each.broken:
                found.setdefault(
                    (session.session, each.discipline),
                    FirstBreak(
                        session.session, each.discipline, each.call, each.line, each.message or ""
                    ),
                )
    return tuple(found.values())
