"""A cap holds: over any schedule, and by nothing but what sessions in flight overran."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from recorder.batch.admission import (
    Admission,
    Admitted,
    Bound,
    Cap,
    Priced,
    Refused,
    Waits,
    caps_of,
    no_room,
)

CENT = Decimal("0.01")
TIERS = ("regression", "campaign")


def cents(least: int, most: int) -> st.SearchStrategy[Decimal]:
    return st.integers(least, most).map(lambda number: number * CENT)


def priced(session: str, dollars: str, tier: str = "campaign") -> Priced:
    return Priced(session, tier, Decimal(dollars))


def test_a_cap_below_one_session_starts_nothing_o27() -> None:
    admission = Admission(caps_of(Decimal("0.49"), {}))
    wanted = priced("a", "0.50")
    decision = admission.decide(wanted)
    assert isinstance(decision, Refused)
    assert decision.said(wanted) == (
        "session a: costs $0.50 as declared, and $0.49 are left of the batch's cap of $0.49"
    )
    assert admission.started == 0
    assert no_room(admission, [wanted]) == decision
    assert no_room(admission, [wanted, priced("b", "0.49")]) is None


def test_equality_starts() -> None:
    admission = Admission(caps_of(Decimal("1.00"), {}))
    assert isinstance(admission.decide(priced("a", "0.50")), Admitted)
    assert isinstance(admission.decide(priced("b", "0.50")), Admitted)
    assert isinstance(admission.decide(priced("c", "0.01")), Waits)


def test_what_a_session_cost_takes_the_place_of_what_was_held() -> None:
    admission = Admission(caps_of(Decimal("1.00"), {}))
    admission.decide(priced("a", "1.00"))
    assert isinstance(admission.decide(priced("b", "0.60")), Waits)
    admission.settle("a", Decimal("0.40"))
    assert isinstance(admission.decide(priced("b", "0.60")), Admitted)
    admission.settle("b", Decimal("0.70"))
    decision = admission.decide(priced("c", "0.01"))
    # O30: what was spent may pass the cap by what the sessions in flight overran.
    assert isinstance(decision, Refused)
    assert decision.left == Decimal("-0.10")


def test_an_unknown_cost_counts_as_what_was_held_for_it() -> None:
    admission = Admission(caps_of(Decimal("1.00"), {}))
    admission.decide(priced("a", "0.75"))
    admission.settle("a", None)
    assert isinstance(admission.decide(priced("b", "0.26")), Refused)
    assert isinstance(admission.decide(priced("b", "0.25")), Admitted)


def test_what_did_not_start_is_not_held() -> None:
    admission = Admission(caps_of(Decimal("1.00"), {}), max_sessions=1)
    admission.decide(priced("a", "1.00"))
    assert isinstance(admission.decide(priced("b", "0")), Bound)
    admission.release("a")
    assert isinstance(admission.decide(priced("b", "1.00")), Admitted)


def test_a_tier_s_ceiling_is_over_its_own_sessions() -> None:
    admission = Admission(caps_of(None, {"campaign": Decimal(1), "regression": Decimal(2)}))
    admission.carry("campaign", Decimal("0.60"))
    refused = admission.decide(priced("a", "0.50"))
    assert isinstance(refused, Refused)
    assert refused.cap.name == "the ceiling of the campaign tier"
    assert isinstance(admission.decide(priced("b", "2", "regression")), Admitted)


def test_a_bound_is_of_started_sessions_and_a_cap_comes_first() -> None:
    admission = Admission(caps_of(Decimal(1), {}), max_sessions=0)
    assert isinstance(admission.decide(priced("a", "2")), Refused)
    assert isinstance(admission.decide(priced("a", "1")), Bound)


@dataclass(frozen=True)
class Planned:
    """A session with what it will have cost, None where nobody will know, and for how long."""

    priced: Priced
    cost: Decimal | None
    rounds: int

    @property
    def counted(self) -> Decimal:
        return self.priced.dollars if self.cost is None else self.cost


@dataclass
class Schedule:
    """Places that take what they may, a round at a time, and an account kept beside them."""

    admission: Admission
    waiting: list[Planned]
    running: dict[Planned, int] = field(default_factory=dict)
    ended: list[Planned] = field(default_factory=list)
    started: int = 0
    overrun: dict[str, Decimal] = field(default_factory=dict)

    def fits(self, one: Planned) -> bool:
        counted = [
            *((p.priced.tier, p.counted) for p in self.ended),
            *((p.priced.tier, p.priced.dollars) for p in (*self.running, one)),
        ]
        return all(
            sum(dollars for tier, dollars in counted if cap.over(tier)) <= cap.dollars
            for cap in self.admission.caps
            if cap.over(one.priced.tier)
        )

    def start(self, parallel: int) -> None:
        for one in list(self.waiting):
            most = self.admission.max_sessions
            may = self.fits(one) and (most is None or self.started < most)
            if len(self.running) >= parallel:
                return
            decision = self.admission.decide(one.priced)
            assert isinstance(decision, Admitted) == may
            if not isinstance(decision, Waits):
                self.waiting.remove(one)
            if isinstance(decision, Admitted):
                self.started += 1
                self.running[one] = one.rounds
                for cap in self.admission.caps:
                    if cap.over(one.priced.tier):
                        self.overrun[cap.name] = Decimal(0)

    def round(self) -> None:
        for one, left in list(self.running.items()):
            self.running[one] = left - 1
            if left > 1:
                continue
            del self.running[one]
            self.admission.settle(one.priced.session, one.cost)
            self.ended.append(one)
            for cap in self.admission.caps:
                if cap.over(one.priced.tier):
                    over = max(Decimal(0), one.counted - one.priced.dollars)
                    self.overrun[cap.name] = self.overrun.get(cap.name, Decimal(0)) + over

    def over(self, cap: Cap) -> Decimal:
        spent = (p.counted for p in self.ended if cap.over(p.priced.tier))
        return sum(spent, Decimal(0)) - cap.dollars


SCHEDULES = st.lists(
    st.tuples(st.sampled_from(TIERS), cents(0, 60), st.none() | cents(0, 90), st.integers(1, 4)),
    max_size=30,
).map(
    lambda found: [
        Planned(Priced(f"s{number}", tier, dollars), cost, rounds)
        for number, (tier, dollars, cost, rounds) in enumerate(found)
    ]
)


@settings(max_examples=1000, deadline=None)
@given(
    SCHEDULES,
    cents(0, 500),
    st.fixed_dictionaries({tier: cents(0, 400) for tier in TIERS}),
    st.integers(1, 5),
    st.none() | st.integers(0, 20),
)
def test_spent_passes_no_cap_by_more_than_the_sessions_in_flight_overran(
    planned: list[Planned],
    batch: Decimal,
    tiers: dict[str, Decimal],
    parallel: int,
    most: int | None,
) -> None:
    schedule = Schedule(Admission(caps_of(batch, tiers), max_sessions=most), planned)
    for _ in range(5 * len(planned) + 5):
        schedule.start(parallel)
        schedule.round()
        for cap in schedule.admission.caps:
            # Since the last session started under it, which fitted then with all in flight.
            assert schedule.over(cap) <= schedule.overrun.get(cap.name, Decimal(0))
            assert schedule.admission.left(cap) == -schedule.over(cap)
    assert not schedule.running
    assert not schedule.waiting
    assert most is None or schedule.started <= most


def test_places_that_ask_at_once_hold_no_more_than_the_cap() -> None:
    admission = Admission(caps_of(Decimal("5.00"), {}))
    gate = threading.Barrier(8)
    admitted: list[str] = []

    def ask(place: int) -> None:
        gate.wait()
        wanted = [priced(f"{place}-{number}", "0.50") for number in range(20)]
        admitted.extend(w.session for w in wanted if isinstance(admission.decide(w), Admitted))

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(admitted) == 10
    assert admission.started == 10
