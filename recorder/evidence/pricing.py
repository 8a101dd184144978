"""What tokens cost by a price table: it stands beside the harness's own figure.

A model or a rate that the table does not name is unknown; unknown is said and never 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib import resources
from typing import Any

import msgspec
import yaml

from recorder.refusal import ExitCode, Refusal

SCHEMA = "recorder-prices/1"
MILLION = Decimal(1_000_000)
PLACES = Decimal("0.000001")
HIGHEST = MILLION
"""A rate of a dollar a token: above it a table is mistaken, and sums need not be exact."""

_DATED = re.compile(r"(?P<name>.+)-(?:[0-9]{8}|[0-9]{4}-[0-9]{2}-[0-9]{2})")


class Rates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dollars per million tokens; None where the table names no such rate."""

    input: Decimal
    output: Decimal
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None
    cache_read: Decimal | None = None


class PriceTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``date``: when the rates were the provider's."""

    schema: str
    date: str
    models: Mapping[str, Rates]

    def rates(self, model: str) -> Rates | None:
        """The rates of the exact name, else of the name less a date at its end; else None."""
        entry = self.entry(model)
        return None if entry is None else self.models[entry]

    def entry(self, model: str) -> str | None:
        """The name under which a model's rates stand; None where it has none."""
        if model in self.models:
            return model
        dated = _DATED.fullmatch(model)
        return dated["name"] if dated and dated["name"] in self.models else None


@dataclass(frozen=True, slots=True)
class Tokens:
    """Counts of one answer. ``cache_write_1h`` is a part of ``cache_write``."""

    input: int
    output: int
    cache_write: int
    cache_write_1h: int
    cache_read: int


def parse_prices(text: str, name: str) -> PriceTable:
    """A price table's YAML. Refusal 2 for one that is not, naming file and place."""
    try:
        table = msgspec.convert(yaml.safe_load(text), PriceTable, strict=False)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise Refusal(ExitCode.USAGE, f"{name}{where}: is not YAML: give a price table") from error
    except msgspec.ValidationError as error:
        raise Refusal(ExitCode.USAGE, f"{name}: is no price table: {error}") from error
    if table.schema != SCHEMA:
        raise Refusal(ExitCode.USAGE, f"{name}: schema is {table.schema}, and {SCHEMA} is read")
    for model, rates in table.models.items():
        for rate in msgspec.structs.astuple(rates):
            if rate is not None and not (rate.is_finite() and 0 <= rate <= HIGHEST):
                raise Refusal(
                    ExitCode.USAGE,
                    f"{name}: a rate of {model} is {rate}: it is a number from 0 to {HIGHEST}, "
                    "in dollars per million tokens",
                )
    return table


@cache
def shipped_prices() -> PriceTable:
    """The table that comes with the recorder."""
    name = "prices.yaml"
    text = resources.files("recorder.evidence").joinpath(name).read_text("utf-8")
    return parse_prices(text, name)


def rates_as_text(table: PriceTable) -> dict[str, dict[str, str]]:
    """The table as the sidecar takes it: a model to its rates as decimal text."""
    return {
        model: {
            name: str(rate)
            for name, rate in msgspec.structs.asdict(rates).items()
            if rate is not None
        }
        for model, rates in table.models.items()
    }


def tokens_of(usage: Mapping[str, Any]) -> Tokens | None:
    """The counts of a provider's usage; None where they do not say what was read and written."""
    split = usage.get("cache_creation")
    counts = (
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        usage.get("cache_creation_input_tokens", 0),
        split.get("ephemeral_1h_input_tokens", 0) if isinstance(split, dict) else 0,
        usage.get("cache_read_input_tokens", 0),
    )
    known = [count for count in counts if type(count) is int and count >= 0]
    if len(known) != len(counts):
        return None
    tokens = Tokens(*known)
    return tokens if tokens.cache_write_1h <= tokens.cache_write else None


def dollars(tokens: Tokens, rates: Rates) -> Decimal | None:
    """What the tokens cost, to 6 places; None where a rate that they need is not known."""
    parts = (
        (tokens.input, rates.input),
        (tokens.output, rates.output),
        (tokens.cache_write - tokens.cache_write_1h, rates.cache_write),
        (tokens.cache_write_1h, rates.cache_write_1h),
        (tokens.cache_read, rates.cache_read),
    )
    total = Decimal(0)
    for count, rate in parts:
        if count and rate is None:
            return None
        total += count * (rate or Decimal(0)) / MILLION
    return total.quantize(PLACES)
