"""Model, served version and cents: known, or said to be unknown."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.stream.observation import observe
from recorder.stream.provider import UNKNOWN, ProviderMembers, cents, provider_members
from tests.stream.streams import blocks, init, result


def members(*stream: bytes) -> ProviderMembers:
    return provider_members(observe(stream))


def entry(canonical: str | None) -> dict[str, Any]:
    return {} if canonical is None else {"canonicalModel": canonical}


def test_the_recorded_stream(shared: Path) -> None:
    """J01, J02"""
    path = shared / "conformance" / "headwater" / "live-haiku-session.reduced.jsonl"
    read = members(path.read_bytes())
    assert read == ProviderMembers("claude-haiku-4-5", "claude-haiku-4-5-20251001", 1, False)


def test_no_result_line_leaves_the_cost_unknown(shared: Path) -> None:
    stream = (shared / "captures" / "claude-code" / "71-sigterm.jsonl").read_bytes()
    read = members(stream)
    assert read.cost_cents is UNKNOWN
    assert read.model == "claude-sonnet-4-5"


@pytest.mark.parametrize("cost", [None, "0.1", True, -1, [1], 1e9, 10**40])
def test_a_cost_that_is_not_a_number_is_unknown(cost: Any) -> None:
    assert members(init(), result(total_cost_usd=cost)).cost_cents is UNKNOWN


@pytest.mark.parametrize(
    ("cost", "expected"),
    [(0, 0), (0.005, 1), (0.125, 13), (0.58, 58), (0.575, 58), (0.0049, 0), (3.955, 396), (2, 200)],
)  # fmt: skip
def test_cents_are_rounded_half_away_from_zero(cost: float, expected: int) -> None:
    assert members(init(), result(total_cost_usd=cost)).cost_cents == expected


@given(st.integers(0, 10**9))
def test_half_a_cent_always_rounds_up(whole: int) -> None:
    assert cents(Decimal(whole) / 100 + Decimal("0.005")) == whole + 1
    assert cents(Decimal(whole) / 100 + Decimal("0.00499999")) == whole


def test_the_last_init_and_the_last_result_count() -> None:
    """J06"""
    read = members(init(model="one"), result(), init(model="two"), result(total_cost_usd=1))
    assert (read.model, read.cost_cents) == ("two", 100)


def test_without_an_init_model_the_first_usage_entry_names_it() -> None:
    """J05"""
    usage = {"b-20250101": entry("b"), "a": entry("a")}
    assert members(init(model=None), result(modelUsage=usage)).model == "a"
    assert members(init(model=None), result(modelUsage={})).model == "unknown"


@pytest.mark.parametrize(
    ("usage", "served"),
    [
        ({"m-20250102": entry("m"), "m-20250101": entry("m")}, "m-20250101"),
        ({"other-20250101": entry("other")}, "m"),
        ({"alias-20250101": entry("m")}, "alias-20250101"),
        ({"m-20250101": entry(None)}, "m-20250101"),
        ({"m-2025010": entry("m")}, "m"),
        ({"m-20250101-v1": entry("m")}, "m"),
        ({"m": entry("m")}, "m"),
    ],
    ids=["J07-sorted", "subagent", "canonical", "old", "seven-digits", "not-at-the-end", "alias"],
)
def test_served_version(usage: dict[str, Any], served: str) -> None:
    assert members(init(model="m"), result(modelUsage=usage)).served_version == served


def test_the_provider_s_own_messages_expose_the_version_where_the_usage_does_not() -> None:
    block = {"type": "text", "text": "x"}
    read = members(init(), blocks(block), result())
    assert read.served_version == "claude-sonnet-4-5-20250929"
    other = blocks(block).replace(b"20250929", b"20260101")
    assert members(init(), blocks(block), other, result()).served_version == "claude-sonnet-4-5"
    foreign = blocks(block).replace(b"sonnet", b"haiku")
    assert members(init(), foreign, result()).served_version == "claude-sonnet-4-5"
    child = blocks(block, parent="toolu_1")
    assert members(init(), child, result()).served_version == "claude-sonnet-4-5"


def test_a_rehearsal_never_passes_for_a_model() -> None:
    read = members(init(), blocks(message_id="msg_rehearsal_7"), result())
    assert read.rehearsal
    assert read.model == "rehearsal/claude-sonnet-4-5"
    assert read.served_version == "rehearsal/claude-sonnet-4-5-20250929"
