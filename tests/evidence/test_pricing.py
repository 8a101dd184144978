"""A price is looked up by the exact name, or less a date at its end; what is unknown is said."""

from __future__ import annotations

from decimal import Decimal

import pytest

from recorder.evidence.pricing import (
    PriceTable,
    Rates,
    Tokens,
    dollars,
    parse_prices,
    shipped_prices,
    tokens_of,
)
from recorder.refusal import ExitCode, Refusal

TABLE = """\
schema: recorder-prices/1
date: "2026-01-02"
models:
  claude-sonnet-4-5: {input: 3, output: 15, cache_write: 3.75, cache_write_1h: 6, cache_read: 0.3}
  gpt-9: {input: 1, output: 2}
"""


@pytest.fixture
def table() -> PriceTable:
    return parse_prices(TABLE, "prices.yaml")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("claude-sonnet-4-5", True),
        ("claude-sonnet-4-5-20250929", True),
        ("gpt-9-2026-08-07", True),
        ("claude-sonnet-4", False),
        ("claude-sonnet-4-5-fast", False),
        ("claude-sonnet-4-5-2025092", False),
        ("claude-sonnet-4-5-20250929-v2", False),
    ],
)
def test_a_model_is_its_exact_name_or_that_less_a_date(
    table: PriceTable, name: str, found: bool
) -> None:
    assert (table.rates(name) is not None) is found


def test_each_kind_of_token_has_its_own_rate(table: PriceTable) -> None:
    rates = table.rates("claude-sonnet-4-5")
    assert rates is not None
    tokens = Tokens(
        input=1000, output=100, cache_write=3000, cache_write_1h=1000, cache_read=10_000
    )
    assert dollars(tokens, rates) == Decimal("0.021")


def test_tokens_without_a_rate_have_no_price_and_no_tokens_cost_nothing() -> None:
    rates = Rates(input=Decimal(1), output=Decimal(2))
    assert dollars(Tokens(1, 1, 1, 0, 0), rates) is None
    assert dollars(Tokens(1, 1, 0, 0, 1), rates) is None
    assert dollars(Tokens(1_000_000, 0, 0, 0, 0), rates) == Decimal(1)
    assert dollars(Tokens(0, 0, 0, 0, 0), rates) == 0


@pytest.mark.parametrize(
    "usage",
    [
        {},
        {"input_tokens": 1},
        {"input_tokens": -1, "output_tokens": 1},
        {"input_tokens": True, "output_tokens": 1},
        {"input_tokens": 1, "output_tokens": "1"},
        {
            "input_tokens": 1,
            "output_tokens": 1,
            "cache_creation_input_tokens": 5,
            "cache_creation": {"ephemeral_1h_input_tokens": 6},
        },
    ],
)
def test_a_usage_that_does_not_state_its_counts_has_none(usage: dict[str, object]) -> None:
    assert tokens_of(usage) is None


def test_a_usage_without_cache_read_and_wrote_none() -> None:
    assert tokens_of({"input_tokens": 1, "output_tokens": 2}) == Tokens(1, 2, 0, 0, 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models: [", "prices.yaml, line 1, column 10"),
        (TABLE.replace("recorder-prices/1", "other/1"), "schema is other/1"),
        (TABLE.replace("output: 2", "outputs: 2"), "$.models[...]"),
        (TABLE.replace("input: 1,", "input: -1,"), "a rate of gpt-9 is -1"),
        (TABLE.replace("input: 1,", "input: NaN,"), "a rate of gpt-9 is NaN"),
        (TABLE.replace("input: 1,", "input: .inf,"), "a rate of gpt-9 is Infinity"),
        (TABLE.replace("input: 1,", "input: 1e30,"), "a rate of gpt-9 is 1E+30"),
        ("schema: recorder-prices/1\n", "date"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(Refusal) as refused:
        parse_prices(text, "prices.yaml")
    assert refused.value.code == ExitCode.USAGE
    assert said in refused.value.reasons[0]


def test_the_shipped_table_is_dated_and_names_every_rate() -> None:
    table = shipped_prices()
    assert len(table.date) == 10
    for rates in table.models.values():
        assert None not in (rates.cache_write, rates.cache_write_1h, rates.cache_read)
        assert rates.input < rates.output
