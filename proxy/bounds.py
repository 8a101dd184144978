"""What a whole session may use, and what it has used. Pure.

What an answer used is the provider's own word. Where it did not come to say it, the most that it
can have been is counted instead: a token is at least one byte. So a bound is met too early rather
than passed unseen; it can be passed by the answers that were underway when it was met.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any

_DATED = re.compile(r"(.+)-(?:[0-9]{8}|[0-9]{4}-[0-9]{2}-[0-9]{2})")
_MILLION = Decimal(1_000_000)


@dataclass(frozen=True)
class Bounds:
    """The most of each that may have been used before another request leaves; None: no bound.

    Requests that left; bytes of theirs and of their answers; tokens in (fresh, written to and read
    from the cache) and out; dollars by the price table.
    """

    requests: int | None = None
    bytes: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    dollars: Decimal | None = None


@dataclass(frozen=True)
class Used:
    """What a session has used, in the same measures."""

    requests: int = 0
    bytes: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: Decimal = Decimal(0)

    def members(self, *, priced: bool) -> dict[str, Any]:
        """For the log. Dollars are decimal text, None without a price table."""
        return {
            "requests": self.requests,
            "bytes": self.bytes,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "dollars": str(self.dollars) if priced else None,
        }


@dataclass(frozen=True)
class Rates:
    """Dollars per million tokens; None where the table names no such rate."""

    input: Decimal
    output: Decimal
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None
    cache_read: Decimal | None = None

    @property
    def dearest_input(self) -> Decimal:
        """What a token in costs at the most."""
        rates = (self.cache_write, self.cache_write_1h, self.cache_read)
        return max((self.input, *(rate for rate in rates if rate is not None)))


Prices = Mapping[str, Rates]


def read_prices(value: object) -> Prices:
    """A price table as the driver hands it over: a model's name to its rates as decimal text.

    Raises:
        ValueError: it is not one.
    """
    if not isinstance(value, dict):
        raise ValueError("prices is an object: a model to its rates")
    table: dict[str, Rates] = {}
    names = set(Rates.__dataclass_fields__)
    for model, rates in value.items():
        if not isinstance(rates, dict) or not {"input", "output"} <= set(rates) <= names:
            raise ValueError("a model's rates are input, output, and those of the cache")
        table[model] = Rates(
            **{name: read_dollars(rate) for name, rate in rates.items() if rate is not None}
        )
    return table


def read_dollars(value: object) -> Decimal:
    """An amount of 0 or more, as decimal text.

    Raises:
        ValueError: it is not one.
    """
    if not isinstance(value, str):
        raise ValueError("an amount of dollars is decimal text")
    try:
        amount = Decimal(value)
    except InvalidOperation as error:
        raise ValueError("an amount of dollars is decimal text") from error
    if not amount.is_finite() or amount < 0:
        raise ValueError("an amount of dollars is 0 or more")
    return amount


def rates_of(prices: Prices, model: object) -> Rates | None:
    """The rates of the exact name, else of the name less a date at its end; else None."""
    if not isinstance(model, str):
        return None
    dated = _DATED.fullmatch(model)
    return prices.get(model) or (prices.get(dated[1]) if dated else None)


@dataclass(frozen=True)
class Told:
    """What is known of an answer that is over. `billed` is False where nothing can be due: the
    request spends nothing, never left, or was answered with an error. `models`: the one that
    served, then the one that was asked."""

    billed: bool
    models: tuple[str | None, ...]
    body_bytes: int
    sent_bytes: int
    received_bytes: int
    most_output: int
    usage: Mapping[str, Any]
    whole: bool


def add(used: Used, told: Told, prices: Prices) -> Used:
    """What has been used once an answer is over; the request itself was counted as it left."""
    used = replace(used, bytes=used.bytes + told.sent_bytes + told.received_bytes)
    if not told.billed:
        return used
    counts = _counts(told.usage)
    known = counts is not None
    fresh, written, written_1h, read, output = counts or (told.body_bytes, 0, 0, 0, 0)
    if not (told.whole and known):
        output = max(output, min(told.most_output, told.received_bytes))
    rates = _rates(prices, told.models)
    cost = Decimal(0)
    if rates is not None:
        dearest = rates.dearest_input
        for count, rate in (
            (fresh, rates.input if known else dearest),
            (written - written_1h, rates.cache_write),
            (written_1h, rates.cache_write_1h),
            (read, rates.cache_read),
            (output, rates.output),
        ):
            cost += count * (dearest if rate is None else rate) / _MILLION
    return replace(
        used,
        input_tokens=used.input_tokens + fresh + written + read,
        output_tokens=used.output_tokens + output,
        dollars=used.dollars + cost,
    )


def _rates(prices: Prices, models: tuple[str | None, ...]) -> Rates | None:
    """The first model's that the table names, else the dearest it has; None without a table."""
    for model in models:
        if (rates := rates_of(prices, model)) is not None:
            return rates
    return max(prices.values(), key=lambda rates: rates.output, default=None)


def _counts(usage: Mapping[str, Any]) -> tuple[int, int, int, int, int] | None:
    """Fresh, written, of those for an hour, read, and out; None where the usage does not say."""
    split = usage.get("cache_creation")
    counts = (
        usage.get("input_tokens"),
        usage.get("cache_creation_input_tokens", 0),
        split.get("ephemeral_1h_input_tokens", 0) if isinstance(split, dict) else 0,
        usage.get("cache_read_input_tokens", 0),
        usage.get("output_tokens"),
    )
    known = [count for count in counts if type(count) is int and count >= 0]
    if len(known) != len(counts) or known[2] > known[1]:
        return None
    return known[0], known[1], known[2], known[3], known[4]
