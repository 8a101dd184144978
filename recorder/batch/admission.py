"""What may start: a session is let in while its price fits what is left of every cap. Pure.

What was spent, what is held for the sessions that run, and the next one's price together are at
most the cap; equality starts. The price is what the tier declares for a session, held until the
session ends and then replaced by what it cost. A cost that nobody knows counts as the price that
was held for it, never as 0. The real cost of a session may be above what was held for it, so the
money spent may pass a cap by what the sessions in flight overran, and by nothing else (O30).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

BATCH = "the batch's cap"


def ceiling_of(tier: str) -> str:
    """The name of a tier's own cap."""
    return f"the ceiling of the {tier} tier"


@dataclass(frozen=True, slots=True)
class Cap:
    """At most ``dollars`` for the sessions that it is over: those of one tier, or all (None)."""

    name: str
    dollars: Decimal
    tier: str | None = None

    def over(self, tier: str) -> bool:
        return self.tier is None or self.tier == tier


@dataclass(frozen=True, slots=True)
class Priced:
    """A session that would start. ``dollars``: its declared price, held for it until it ends."""

    session: str
    tier: str
    dollars: Decimal


@dataclass(frozen=True, slots=True)
class Admitted:
    """It starts: its price is held."""

    dollars: Decimal


@dataclass(frozen=True, slots=True)
class Waits:
    """It would fit if the sessions in flight cost less than is held for them."""

    cap: Cap


@dataclass(frozen=True, slots=True)
class Refused:
    """It does not fit what is left of a cap, whatever the sessions in flight will have cost."""

    cap: Cap
    left: Decimal

    def said(self, priced: Priced) -> str:
        """`session N: costs $0.50 as declared, and $0.49 are left of the batch's cap of $1`."""
        return (
            f"session {priced.session}: costs ${priced.dollars} as declared, and ${self.left} are "
            f"left of {self.cap.name} of ${self.cap.dollars}"
        )


@dataclass(frozen=True, slots=True)
class Bound:
    """As many sessions as this run may start were started."""

    sessions: int


Decision = Admitted | Waits | Refused | Bound


@dataclass
class Admission:
    """The budget of one run, shared by its places: each decision is one step under one lock.

    ``spent`` and ``held`` are dollars by tier; ``max_sessions`` is how many this run may start.
    """

    caps: Sequence[Cap]
    max_sessions: int | None = None
    started: int = 0
    spent: dict[str, Decimal] = field(default_factory=dict)
    held: dict[str, Priced] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition, repr=False)

    def decide(self, priced: Priced) -> Decision:
        """Hold the price of a session that may start, or say why it may not."""
        with self._changed:
            decision = self._decide(priced)
            if isinstance(decision, Admitted):
                self.started += 1
                self.held[priced.session] = priced
            return decision

    def peek(self, priced: Priced) -> Decision:
        """What ``decide`` would say, and nothing held."""
        with self._changed:
            return self._decide(priced)

    def settle(self, session: str, cost: Decimal | None) -> None:
        """A session ended: what it cost takes the place of what was held; None is unknown."""
        with self._changed:
            priced = self.held.pop(session)
            self._spend(priced.tier, priced.dollars if cost is None else cost)
            self._changed.notify_all()

    def release(self, session: str) -> None:
        """A session that was let in did not start after all."""
        with self._changed:
            self.held.pop(session)
            self.started -= 1
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Until a session ends or is released, or so many seconds have passed."""
        with self._changed:
            self._changed.wait(seconds)

    def carry(self, tier: str, dollars: Decimal) -> None:
        """What earlier runs of the batch spent, or are held to have spent."""
        with self._changed:
            self._spend(tier, dollars)

    def left(self, cap: Cap) -> Decimal:
        """A cap less what was spent; what is held is not spent."""
        return cap.dollars - sum(
            (spent for tier, spent in self.spent.items() if cap.over(tier)), Decimal(0)
        )

    def _spend(self, tier: str, dollars: Decimal) -> None:
        self.spent[tier] = self.spent.get(tier, Decimal(0)) + dollars

    def _decide(self, priced: Priced) -> Decision:
        over = [cap for cap in self.caps if cap.over(priced.tier)]
        for cap in over:
            left = self.left(cap)
            if priced.dollars > left:
                return Refused(cap, left)
        if self.max_sessions is not None and self.started >= self.max_sessions:
            return Bound(self.max_sessions)
        for cap in over:
            held = sum((p.dollars for p in self.held.values() if cap.over(p.tier)), Decimal(0))
            if held + priced.dollars > self.left(cap):
                return Waits(cap)
        return Admitted(priced.dollars)


def caps_of(batch: Decimal | None, tiers: Mapping[str, Decimal]) -> tuple[Cap, ...]:
    """The caps of a batch: its own, where it has one, and the ceiling that each tier declares."""
    own = () if batch is None else (Cap(BATCH, batch),)
    return (*own, *(Cap(ceiling_of(tier), dollars, tier) for tier, dollars in tiers.items()))


def no_room(admission: Admission, waiting: Iterable[Priced]) -> Refused | None:
    """Why none of the sessions that wait can start; None where one can, or none waits."""
    found: Refused | None = None
    for priced in waiting:
        decision = admission.peek(priced)
        if not isinstance(decision, Refused):
            return None
        found = found or decision
    return found
