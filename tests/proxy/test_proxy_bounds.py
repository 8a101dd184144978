"""What a session has used: the provider's word, the price table's figure, and the most of what
nobody said."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.bounds import Rates, Told, Used, add, rates_of, read_dollars, read_prices
from recorder.evidence.pricing import dollars, shipped_prices, tokens_of

TABLE = shipped_prices()
PRICES = read_prices(json.loads(msgspec.json.encode(TABLE.models)))
TOLD = Told(
    billed=True,
    models=("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
    body_bytes=9000,
    sent_bytes=9500,
    received_bytes=2000,
    most_output=32000,
    usage={"input_tokens": 10, "output_tokens": 5},
    whole=True,
)
COUNT = st.integers(0, 10_000_000)


@given(COUNT, COUNT, COUNT, COUNT, st.integers(0, 100), st.sampled_from(sorted(TABLE.models)))
def test_a_whole_answer_costs_what_the_recorder_says_it_does(
    fresh: int, output: int, written: int, read: int, part: int, model: str
) -> None:
    usage = {
        "input_tokens": fresh,
        "output_tokens": output,
        "cache_creation_input_tokens": written,
        "cache_creation": {"ephemeral_1h_input_tokens": written * part // 100},
        "cache_read_input_tokens": read,
    }
    used = add(Used(), replace(TOLD, models=(f"{model}-20250929", None), usage=usage), PRICES)
    tokens, rates = tokens_of(usage), TABLE.rates(model)
    assert tokens is not None
    assert rates is not None
    assert used.dollars.quantize(Decimal("0.000001")) == dollars(tokens, rates)
    assert used.input_tokens == fresh + written + read
    assert used.output_tokens == output
    assert used.bytes == 11500


@pytest.mark.parametrize(
    ("usage", "whole", "tokens"),
    [
        ({}, True, (9000, 2000)),
        ({}, False, (9000, 2000)),
        ({"input_tokens": 10, "output_tokens": 1}, False, (10, 2000)),
        ({"input_tokens": 10, "output_tokens": 3000}, False, (10, 3000)),
        ({"input_tokens": -10, "output_tokens": 5}, True, (9000, 2000)),
        ({"input_tokens": "10", "output_tokens": 5}, True, (9000, 2000)),
        ({"input_tokens": True, "output_tokens": 5}, True, (9000, 2000)),
    ],
)
def test_what_an_answer_did_not_say_is_counted_at_its_most(
    usage: dict[str, Any], whole: bool, tokens: tuple[int, int]
) -> None:
    used = add(Used(), replace(TOLD, usage=usage, whole=whole), PRICES)
    assert (used.input_tokens, used.output_tokens) == tokens


def test_what_the_provider_takes_no_money_for_is_counted_in_bytes_alone() -> None:
    used = add(Used(requests=1), replace(TOLD, billed=False), PRICES)
    assert used == Used(requests=1, bytes=11500)


def test_a_model_without_a_price_costs_what_the_one_that_was_asked_does_or_the_dearest() -> None:
    asked = add(Used(), replace(TOLD, models=("unheard-of", "claude-haiku-4-5")), PRICES)
    assert asked.dollars == Decimal("0.000035")
    neither = add(Used(), replace(TOLD, models=("unheard-of", None)), PRICES)
    assert neither.dollars == max(
        10 * rates.input / 1_000_000 + 5 * rates.output / 1_000_000 for rates in PRICES.values()
    )
    assert add(Used(), TOLD, {}).dollars == 0


def test_a_rate_that_the_table_lacks_is_counted_as_the_dearest_of_the_model() -> None:
    prices = {"m": Rates(Decimal(3), Decimal(15))}
    usage = {"input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": 1_000_000}
    used = add(Used(), replace(TOLD, models=("m", None), usage=usage), prices)
    assert used.dollars == 3


def test_a_name_is_looked_up_whole_or_less_its_date() -> None:
    assert rates_of(PRICES, "claude-opus-5-2025-08-07") == PRICES["claude-opus-5"]
    assert rates_of(PRICES, "claude-opus-5-9") is None
    assert rates_of(PRICES, "claude-opus-5-20250929-20250929") is None
    assert rates_of(PRICES, None) is None


@pytest.mark.parametrize(
    "table",
    [
        [],
        "",
        {"m": []},
        {"m": {"input": "1"}},
        {"m": {"input": "1", "output": "2", "other": "3"}},
        {"m": {"input": 1, "output": "2"}},
        {"m": {"input": "-1", "output": "2"}},
        {"m": {"input": "NaN", "output": "2"}},
        {"m": {"input": "x", "output": "2"}},
    ],
)
def test_a_table_that_is_none_is_refused(table: object) -> None:
    with pytest.raises(ValueError, match=r"rates|amount|object"):
        read_prices(table)


@pytest.mark.parametrize("amount", [1, 1.5, None, "", "1e999999999x", "-0.01", "Infinity"])
def test_an_amount_is_decimal_text(amount: object) -> None:
    with pytest.raises(ValueError, match="an amount"):
        read_dollars(amount)
