"""The result lines of a stream against what the provider counted: text, usage and cost. Pure.

How Claude Code 2.1.332 counts, measured: ``usage`` of a result line is the sum over the session's
own answers of its turn, as they ended, and some of the answers that were cut or had to be asked
for again (2.0.77 leaves out what it got without streaming). ``modelUsage`` is over all of the
session, by the model that was asked for, with every subagent and side call, and with an estimate
of its own of what a cut answer had put out. ``total_cost_usd`` is the sum of its dollars.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from proxy.witness import block_digest
from recorder.evidence.corroboration_provider import Exchange
from recorder.evidence.corroboration_stream import MAIN, ShownBlock, ShownResult, StreamWitness
from recorder.evidence.pricing import PriceTable, dollars, tokens_of

USAGE = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
)
MODEL_USAGE = (
    "inputTokens",
    "cacheCreationInputTokens",
    "cacheReadInputTokens",
    "outputTokens",
)
MOST_SUMS = 50_000
NAMED_DIFFERENCE = Decimal("0.01")

Vector = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Dollars. ``harness`` is its own figure, ``table`` tokens by the price table; None: unknown.

    ``difference`` is the part of the harness's figure that the two are apart; ``foreign`` what
    requests of other processes cost by the table. ``unknown_models`` have no rate in the table.
    """

    harness: Decimal | None
    table: Decimal | None
    foreign: Decimal | None
    difference: Decimal | None
    table_date: str
    unknown_models: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether the two are more than 1 % apart."""
        return self.difference is not None and abs(self.difference) > NAMED_DIFFERENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The session's exchanges as the join sorted them: shown or adopted, and all the others."""

    main: Sequence[Exchange]
    others: Sequence[Exchange]
    foreign: Sequence[Exchange]
    shown: frozenset[int]


def result_faults(stream: StreamWitness, counted: Counted) -> Iterator[tuple[int, str]]:
    """``(line, what)`` of every member of a result line that does not follow from the answers."""
    for result in stream.results:
        for what in _text_faults(stream, result):
            yield result.line, what
    if not stream.results:
        return
    yield from _usage_faults(stream, counted)
    last = stream.results[-1]
    for what in (*_model_faults(last, counted), *_sum_faults(last)):
        yield last.line, what


def _text_faults(stream: StreamWitness, result: ShownResult) -> Iterator[str]:
    members = result.members
    text, subtype = members.get("result"), members.get("subtype")
    shown = [block for block in stream.blocks if block.thread == MAIN and block.line < result.line]
    own = [block for block in stream.own_words if block.line < result.line]
    last = shown[-1] if shown else None
    if not isinstance(members.get("is_error"), bool) or not isinstance(subtype, str):
        yield "it does not state how the session ended"
    if members.get("is_error") is not True and subtype != "error_max_turns":
        # A background subagent holds the first result back until the end, so an earlier answer
        # may be its text; and a turn can end before it asked for anything.
        said = {block.digest for block in _last_of_each_turn(stream, shown)}
        asked = any(_numbers(members.get("usage"), USAGE) or (1,))
        empty = last is None or last.kind != "text" or not said or not asked
        if not isinstance(text, str):
            yield "it states no error and no text"
        elif not (text == "" and empty) and _digest(text) not in said:
            yield "the final text is not the last that the provider gave"
    elif subtype == "success":
        if not any(_digest(text) == block.digest for block in own):
            yield "an error is stated as the result, and no line of the stream tells it"
    elif subtype == "error_max_turns" and last is not None and last.kind == "text":
        yield "the turn cap is stated as the end, and the last answer asks for no further turn"
    called = {str(block.block.get("id")) for block in stream.blocks if block.kind == "tool_use"}
    denials = members.get("permission_denials")
    for denied in denials if isinstance(denials, list) else ():
        call = str(denied.get("tool_use_id")) if isinstance(denied, dict) else "no call"
        if call not in called:
            yield f"a call was denied that is not shown ({call})"


def _last_of_each_turn(stream: StreamWitness, shown: Sequence[ShownBlock]) -> Iterator[ShownBlock]:
    """The text that each turn ended with: the last of the stream, or before the next init line."""
    ends = [*stream.inits[1:], stream.results[-1].line + 1]
    lines = [block.line for block in shown]
    for end in ends:
        at = bisect.bisect_left(lines, end)
        if at and shown[at - 1].kind == "text":
            yield shown[at - 1]


def _digest(text: Any) -> str:
    return block_digest({"type": "text", "text": text})


def _numbers(usage: Any, keys: Sequence[str]) -> Vector | None:
    """The counts under these keys; None where one is missing or is no whole number."""
    if not isinstance(usage, dict):
        return None
    counts = tuple(usage[key] for key in keys if type(usage.get(key)) is int)
    return counts if len(counts) == len(keys) else None


def _vector(usage: Mapping[str, Any]) -> Vector:
    counts = (usage.get(key) for key in USAGE)
    return tuple(count if type(count) is int else 0 for count in counts)


def _usage_faults(stream: StreamWitness, counted: Counted) -> Iterator[tuple[int, str]]:
    must, may = _split(counted.main, counted.shown)
    stated = []
    for result in stream.results:
        counts = _numbers(result.members.get("usage"), USAGE)
        if counts is None:
            yield result.line, "its usage does not state what was read and written"
            return
        stated.append(counts)
    total = tuple(map(sum, zip(*stated, strict=True)))
    if not _reachable(total, must, may):
        named = ", ".join(USAGE)
        yield stream.results[-1].line, f"its usage ({named}) is not the sum over the answers"
        return
    if len(stream.inits) != len(stream.results) or len(stream.results) == 1:
        return
    first_line = {
        block.message: block.line for block in reversed(stream.blocks) if block.thread == MAIN
    }
    for index, result in enumerate(stream.results):
        begin = stream.inits[index]
        end = stream.inits[index + 1] if index + 1 < len(stream.inits) else 1 << 62
        own = [each for each in must if begin < first_line.get(each.message, 0) < end]
        if not _reachable(stated[index], own, may):
            yield result.line, "its usage is not the sum over the answers of its turn"


def _split(
    exchanges: Sequence[Exchange], shown: frozenset[int]
) -> tuple[list[Exchange], list[Exchange]]:
    """The answers that a sum has to hold, and those that it may."""
    answered = [each for each in exchanges if each.message]
    must = [each for each in answered if each.number in shown and each.streamed]
    return must, [each for each in answered if each not in must]


def _reachable(
    stated: Vector, must: Sequence[Exchange], may: Sequence[Exchange], *, at_least: bool = False
) -> bool:
    """Whether the sum over all of ``must`` and some of ``may`` is what was stated.

    With ``at_least`` the last count may be larger by as many tokens as the cut answers had bytes.
    """
    base = tuple(map(sum, zip(*(_vector(each.usage) for each in must), strict=True))) or (0,) * 4
    excess = sum(each.received_bytes for each in (*must, *may) if not each.whole)
    sums = {base}
    for each in may:
        vector = _vector(each.usage)
        sums |= {tuple(map(sum, zip(found, vector, strict=True))) for found in sums}
        if len(sums) > MOST_SUMS:
            # Hundreds of unlike answers were cut: all that can be said is that it is not less.
            return all(left <= right for left, right in zip(base, stated, strict=True))
    if not at_least:
        return stated in sums
    return any(
        found[:-1] == stated[:-1] and found[-1] <= stated[-1] <= found[-1] + excess
        for found in sums
    )


def _model_faults(result: ShownResult, counted: Counted) -> Iterator[str]:
    stated = result.members.get("modelUsage")
    if not isinstance(stated, dict):
        yield "it states no usage by model"
        return
    every = [each for each in (*counted.main, *counted.others) if each.message]
    asked = {_undecorated(each.model) for each in every}
    for name in sorted({_undecorated(name) for name in stated} - asked):
        yield f"it states usage of {name}, which no request asked for"
    for name in sorted(asked - {_undecorated(name) for name in stated}):
        if any(each.number in counted.shown and _undecorated(each.model) == name for each in every):
            yield f"it states no usage of {name}, which answers of the stream were asked of"
    for name, usage in stated.items():
        own = [each for each in every if _undecorated(each.model) == _undecorated(name)]
        must, may = _split(own, counted.shown)
        counts = _numbers(usage, MODEL_USAGE)
        if counts is None:
            yield f"its usage of {name} does not state what was read and written"
        elif own and not _reachable(counts, must, may, at_least=True):
            yield f"its usage of {name} is not the sum over the answers"


def _undecorated(name: str | None) -> str:
    """A model's name without the mark of a longer context (``[1m]``), which no request carries."""
    return (name or "").partition("[")[0]


def _sum_faults(result: ShownResult) -> Iterator[str]:
    stated, usage = result.members.get("total_cost_usd"), result.members.get("modelUsage")
    if not isinstance(stated, int | float) or not isinstance(usage, dict):
        return
    costs = [
        float(entry["costUSD"])
        for entry in usage.values()
        if isinstance(entry, dict) and isinstance(entry.get("costUSD"), int | float)
    ]
    if len(costs) != len(usage):
        yield "a model's usage states no cost"
    elif abs(sum(costs) - stated) > 1e-9 + 1e-9 * abs(stated):
        yield "its cost is not the sum of its models' costs"


def cost_of(stream: StreamWitness, counted: Counted, prices: PriceTable) -> Cost:
    """The harness's figure and the table's, side by side; the table's over all but foreign ones."""
    stated = stream.results[-1].members.get("total_cost_usd") if stream.results else None
    harness = Decimal(str(stated)) if type(stated) in (int, float) else None
    unknown: dict[str, None] = {}
    own = _priced([*counted.main, *counted.others], prices, unknown)
    foreign = _priced(counted.foreign, prices, unknown)
    difference = None
    if harness is not None and own is not None and (harness or own):
        difference = (own - harness) / harness if harness else Decimal(1)
    return Cost(
        harness=harness,
        table=own,
        foreign=foreign,
        difference=difference,
        table_date=prices.date,
        unknown_models=tuple(unknown),
    )


def _priced(
    exchanges: Sequence[Exchange], prices: PriceTable, unknown: dict[str, None]
) -> Decimal | None:
    total: Decimal | None = Decimal(0)
    for exchange in exchanges:
        if exchange.message is None:
            continue
        name = exchange.model_served or exchange.model or "a model without a name"
        rates, tokens = prices.rates(name), tokens_of(exchange.usage)
        cost = dollars(tokens, rates) if rates is not None and tokens is not None else None
        if cost is None:
            unknown[name] = None
            total = None
        elif total is not None:
            total += cost
    return total
