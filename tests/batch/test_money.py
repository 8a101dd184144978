"""Money: each attempt once at its own figure, whichever way it is summed; unknown is never 0."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.batch.money import Sum, counted, line_of, money_of
from recorder.evidence.accounting import Account
from recorder.ledger.entries import (
    Cost,
    Estimated,
    Line,
    Reported,
    SessionDecision,
    Tokens,
    Unknown,
)
from recorder.ledger.state import Attempt
from tests.batch.ledgers import CENT, TOKENS, end, pinned_line, run_start, start, state_of

LINES = (
    pinned_line("campaign", "present"),
    pinned_line("campaign", "absent"),
    pinned_line("regression", "present"),
)
NAMES = tuple(
    f"L{number}-{line.tier}-{line.arm}-p1-r{repetition}"
    for number, line in enumerate(LINES, start=1)
    for repetition in (1, 2)
)

DOLLARS = st.integers(0, 500).map(lambda cents: cents * CENT)
COSTS: st.SearchStrategy[Cost] = st.one_of(
    DOLLARS.map(Reported),
    DOLLARS.map(lambda usd: Estimated(usd, ("m",))),
    st.just(Unknown()),
    st.just(Unknown(("claude-x",))),
)
ATTEMPTS = st.dictionaries(
    st.sampled_from(NAMES),
    st.lists(st.tuples(COSTS, st.booleans(), st.booleans()), min_size=1, max_size=3),
)


def lines_of(attempts: dict[str, list[tuple[Cost, bool, bool]]]) -> list[Line]:
    found: list[Line] = [run_start()]
    for session, own in attempts.items():
        for number, (cost, failed, measured) in enumerate(own, start=1):
            last = number == len(own)
            code = 10 if failed or not last else 0
            tokens = TOKENS if measured else None
            found.append(start(session, number))
            if failed and not measured and not last:
                # Given up: a person decided that it runs again, and its cost stays.
                found.append(
                    SessionDecision(
                        session=session, attempt=number, decision="again", reason="r", cost=cost
                    )
                )
            else:
                found.append(end(session, number, code=code, cost=cost, tokens=tokens))
    return found


def total(sums: tuple[Sum, ...], member: str) -> object:
    values = [getattr(found, member) for found in sums]
    return sum(values[1:], values[0])


@given(ATTEMPTS)
def test_every_way_of_summing_counts_each_attempt_once(
    attempts: dict[str, list[tuple[Cost, bool, bool]]],
) -> None:
    state = state_of(*lines_of(attempts))
    money = money_of(state, LINES)
    costs = [cost for own in attempts.values() for cost, _, _ in own]
    reported = sum((c.usd for c in costs if isinstance(c, Reported)), Decimal(0))
    estimated = sum((c.usd for c in costs if isinstance(c, Estimated)), Decimal(0))
    assert money.batch.reported_usd == reported
    assert money.batch.estimated_usd == estimated
    assert money.batch.usd == reported + estimated
    assert money.batch.attempts == len(costs)
    assert money.batch.sessions == len(attempts)
    for sums in (money.tiers, money.arms, money.lines):
        for member in ("usd", "attempts", "sessions", "unknown_calls", "unmeasured_calls"):
            assert total(sums, member) == getattr(money.batch, member)
    totals = state.totals()
    for member in (
        "usd",
        "reported_usd",
        "estimated_usd",
        "unknown_calls",
        "unknown_models",
        "unmeasured_calls",
        "tokens",
        "attempts",
    ):
        assert getattr(totals, member) == getattr(money.batch, member)


def test_a_sum_says_what_is_not_known() -> None:
    state = state_of(
        run_start(),
        start(NAMES[0]),
        end(NAMES[0], code=10, cost=Unknown(("claude-x",)), tokens=None),
        start(NAMES[0], 2),
        end(NAMES[0], 2, cost=Reported(Decimal("1.20")), billing="subscription"),
        start(NAMES[2]),
        end(NAMES[2], cost=Estimated(Decimal("0.30"), ("m",)), billing="subscription"),
    )
    money = money_of(state, LINES)
    assert money.batch.said() == (
        "$1.5000 in 2 sessions ($0.3000 of it by the price table, 1 of 3 attempts of unknown cost)"
    )
    assert money.batch.unknown_models == ("claude-x",)
    assert money.batch.billing == {"api": 1, "subscription": 2}
    assert [(arm.name, str(arm.usd)) for arm in money.arms] == [
        ("campaign present", "1.20"),
        ("campaign absent", "0.30"),
        ("regression present", "0"),
    ]
    assert [line.said() for line in money.lines][2] == "$0.0000 in 0 sessions"


def test_against_a_cap_an_unknown_cost_is_what_was_held() -> None:
    held = Attempt(start("s", reserved="0.50"))
    assert counted(held) == Decimal("0.50")
    held.end = end("s", cost=Unknown())
    assert counted(held) == Decimal("0.50")
    held.end = end("s", cost=Unknown(), requests=0)
    assert counted(held) == 0
    held.end = end("s", cost=Estimated(Decimal("0.75"), ("m",)))
    assert counted(held) == Decimal("0.75")


@pytest.mark.parametrize(
    ("requests", "tokens", "known"),
    [
        (1, (0, 0, 0, 5), False),
        (1, (1, 0, 0, 0), False),
        (1, None, False),
        (1, (0, 0, 0, 0), True),
        (0, (0, 0, 0, 0), True),
        (None, None, True),
    ],
)
def test_a_reported_0_beside_what_was_asked_is_unknown(
    requests: int | None, tokens: tuple[int, int, int, int] | None, known: bool
) -> None:
    counts = (
        None
        if tokens is None
        else Tokens(input=tokens[0], output=tokens[1], cache_write=tokens[2], cache_read=tokens[3])
    )
    cost = Account(requests, counts, Unknown(), True).cost(Decimal(0))
    assert isinstance(cost, Reported if known else Unknown)


def test_a_session_s_line_is_in_its_name() -> None:
    assert line_of("L12-campaign-present-p1-r1") == 12
    assert line_of("other") == 0
