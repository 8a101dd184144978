"""The exit code that a batch stands at: one cause, and what a person has to decide first."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from recorder.batch.admission import Cap, Priced, Refused
from recorder.batch.halts import RULES, Halt
from recorder.batch.resume import Due, Over
from recorder.batch.rounds import Round
from recorder.batch.standing import Standing, named, standing_of

DUE = Due(1, "first")
RULE = {rule.name: rule for rule in RULES}
OUT = Path("/out")


def refusing(*sessions: str) -> Round:
    cap = Cap("the batch's cap", Decimal("1.00"))
    return Round(
        refused=[
            (Priced(session, "campaign", Decimal("0.50")), Refused(cap, Decimal("0.20")))
            for session in sessions
        ]
    )


def stands(
    sessions: dict[str, Due | Over],
    last: Round | None = None,
    halted: tuple[str, ...] = (),
    canary: tuple[str, ...] = (),
) -> Standing:
    return standing_of(sessions, last or Round(), halted=halted, canary=canary, out=OUT)


@pytest.mark.parametrize(
    ("sessions", "last", "halted", "canary", "code"),
    [
        ({"a": "recorded", "b": "left-out"}, None, (), (), 0),
        ({"a": "recorded", "b": DUE}, Round(bounded=True), (), (), 15),
        ({"a": "recorded", "b": DUE}, Round(stopped=True), (), (), 15),
        ({"a": "failed", "b": DUE}, None, (), (), 17),
        ({"a": "failed", "b": DUE}, Round(halt=Halt(RULE["outage"], "a")), ("a",), (), 15),
        ({"a": "failed", "b": "failed"}, Round(halt=Halt(RULE["outage"], "a")), ("a",), (), 17),
        ({"a": "failed", "b": "recorded"}, None, ("a",), (), 17),
        ({"a": DUE}, Round(halt=Halt(RULE["disk"], "a")), ("a",), (), 16),
        ({"a": "recorded", "b": DUE}, refusing("b"), (), (), 16),
        ({"a": DUE, "b": DUE}, refusing("b"), (), (), 15),
        ({"a": "failed", "b": DUE}, refusing("b"), (), (), 17),
        ({"a": "uncertain", "b": "failed"}, None, (), (), 18),
        ({"a": "recorded", "b": DUE}, None, (), ("a",), 15),
        ({"a": DUE, "b": DUE}, None, (), ("a",), 15),
    ],
)
def test_each_cause_has_its_code(
    sessions: dict[str, Due | Over],
    last: Round | None,
    halted: tuple[str, ...],
    canary: tuple[str, ...],
    code: int,
) -> None:
    standing = stands(sessions, last, halted, canary)
    assert standing.code == code
    assert bool(standing.reasons) == bool(code)
    assert all("\n" not in reason for reason in standing.reasons)


def test_the_reason_says_what_to_do() -> None:
    assert stands({"a": "recorded", "b": DUE}).reasons == (
        "1 of 2 sessions are over, 1 remain: run the same command again",
    )
    (waiting,) = stands({"a": "recorded", "b": DUE}, canary=("a",)).reasons
    assert "`recorder batch accept /out`" in waiting
    (full,) = stands({"a": DUE, "b": DUE}, refusing("a", "b")).reasons
    assert full.endswith(
        "costs $0.50 as declared, and $0.20 are left of the batch's cap of $1.00 (and 1 more "
        "like it): raise the cap"
    )
    (failed,) = stands({"a": "failed"}).reasons
    assert "--retry failed" in failed


def test_many_names_are_counted() -> None:
    names = [f"s{number}" for number in range(12)]
    assert named(names) == f"{', '.join(names[:10])} and 2 more"
    assert named(names[:2]) == "s0, s1"
