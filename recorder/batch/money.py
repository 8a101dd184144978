"""What a batch cost: by line, arm, tier and in all, each attempt once at its recorded figure. Pure.

Nothing is priced here: an attempt's figure is what its ledger says, from whichever run. The cost of
an attempt that was given up, and of one that another followed, stays in the sums.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import chain

import msgspec

from recorder.batch.pinned import PinnedLine
from recorder.ledger.entries import Estimated, Reported, Tokens, Unknown
from recorder.ledger.state import Attempt, State, spending_of

_LINE = re.compile(r"L([0-9]+)-")


class Sum(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Attempts and their money. ``usd`` adds up what is known; ``unknown_calls`` is never 0 money.

    ``sessions`` have an attempt. ``unmeasured_calls`` state no tokens. ``billing`` counts attempts
    that ended by how they are paid for.
    """

    name: str
    sessions: int
    attempts: int
    usd: Decimal
    reported_usd: Decimal
    estimated_usd: Decimal
    unknown_calls: int
    unknown_models: tuple[str, ...]
    tokens: Tokens
    unmeasured_calls: int
    billing: Mapping[str, int]

    def said(self) -> str:
        """`$1.2000 in 3 sessions (1 of 4 attempts of unknown cost)`."""
        counted = f"${self.usd:.4f} in {self.sessions} sessions"
        parts = []
        if self.estimated_usd:
            parts.append(f"${self.estimated_usd:.4f} of it by the price table")
        if self.unknown_calls:
            parts.append(f"{self.unknown_calls} of {self.attempts} attempts of unknown cost")
        return counted + (f" ({', '.join(parts)})" if parts else "")


class Money(msgspec.Struct, frozen=True, kw_only=True):
    """The same attempts, summed four times."""

    batch: Sum
    tiers: tuple[Sum, ...]
    arms: tuple[Sum, ...]
    lines: tuple[Sum, ...]


def money_of(state: State, lines: Sequence[PinnedLine]) -> Money:
    """The money of a batch by its ledger; ``lines`` are those that it pinned, in order."""
    by_line: dict[int, dict[str, list[Attempt]]] = {n: {} for n in range(1, len(lines) + 1)}
    for session, attempts in state.sessions.items():
        by_line.setdefault(line_of(session), {})[session] = attempts

    def over(name: str, numbers: Iterable[int]) -> Sum:
        sessions = [own for number in numbers for own in by_line[number].values()]
        return _sum(name, sessions)

    numbered = list(enumerate(lines, start=1))
    return Money(
        batch=over("the batch", by_line),
        tiers=tuple(
            over(tier, (n for n, line in numbered if line.tier == tier))
            for tier in dict.fromkeys(line.tier for line in lines)
        ),
        arms=tuple(
            over(
                f"{tier} {arm}", (n for n, line in numbered if (line.tier, line.arm) == (tier, arm))
            )
            for tier, arm in dict.fromkeys((line.tier, line.arm) for line in lines)
        ),
        lines=tuple(over(f"L{n}-{line.tier}-{line.arm}", (n,)) for n, line in numbered),
    )


def line_of(session: str) -> int:
    """The number of a session's line, which its name begins with; 0 for a name that has none."""
    found = _LINE.match(session)
    return int(found[1]) if found else 0


def counted(attempt: Attempt) -> Decimal:
    """What an attempt counts against a cap: what it cost, and where nobody knows, its reservation.

    One that reached no provider counts nothing.
    """
    match attempt.cost:
        case Reported(usd=usd) | Estimated(usd=usd):
            return usd
        case Unknown():
            held = attempt.start.reserved or Decimal(0)
            return Decimal(0) if attempt.requests == 0 else held


def _sum(name: str, sessions: Sequence[Sequence[Attempt]]) -> Sum:
    attempts = list(chain.from_iterable(sessions))
    spending = spending_of(attempts)
    return Sum(
        name=name,
        sessions=sum(bool(own) for own in sessions),
        attempts=spending.attempts,
        usd=spending.usd,
        reported_usd=spending.reported_usd,
        estimated_usd=spending.estimated_usd,
        unknown_calls=spending.unknown_calls,
        unknown_models=spending.unknown_models,
        tokens=spending.tokens,
        unmeasured_calls=spending.unmeasured_calls,
        billing=Counter(attempt.end.billing for attempt in attempts if attempt.end is not None),
    )
