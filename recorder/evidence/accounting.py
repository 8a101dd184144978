"""What one attempt of a session cost, from the harness's own figure and the egress log. Pure.

A request counts as one that reached the provider when the log allowed it: the line is on disk
before anything leaves, so a log that was cut at its end still decides how many there were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from msgspec import structs

from proxy.egress import read
from recorder.evidence.corroboration_provider import MESSAGES_PATH
from recorder.evidence.pricing import PLACES, PriceTable, dollars, tokens_of
from recorder.ledger.entries import Cost, Estimated, Reported, Tokens, Unknown

NO_CLOSE = "no closing line: the log was cut"


@dataclass(frozen=True)
class Account:
    """``requests`` that reached the provider; None where the log does not decide it.

    ``tokens`` is None where an answer says none. ``whole``: the log has its closing line.
    """

    requests: int | None
    tokens: Tokens | None
    estimate: Cost
    whole: bool

    def cost(self, stated: Decimal | None) -> Cost:
        """The one figure, to 6 places: the harness's own where it stated one, else the table's.

        A stated 0 beside tokens, or beside requests whose tokens nobody knows, is no figure: some
        harnesses write 0 where they have no price.
        """
        if stated is None:
            return self.estimate
        if stated == 0 and (
            self.requests if self.tokens is None else any(structs.astuple(self.tokens))
        ):
            return Unknown()
        return Reported(stated.quantize(PLACES))


NOTHING = Account(
    0, Tokens(input=0, output=0, cache_write=0, cache_read=0), Estimated(Decimal(0), ()), True
)
"""The account of an attempt that was never started."""


def account_of(log: bytes | None, prices: PriceTable) -> Account:
    """What an egress log says was spent. ``log`` is None where there is none."""
    unknown = Account(None, None, Unknown(), False)
    if log is None:
        return unknown
    lines = log.splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        # It was being written when its sidecar ended; what leaves is on disk before it leaves.
        lines.pop()
    reading = read(lines)
    if not reading.lines or any(fault != NO_CLOSE for fault in reading.faults):
        return unknown
    tokens, estimate = _priced(reading.lines, prices)
    return Account(reading.allowed, tokens, estimate, not reading.faults)


def account_without_end(log: bytes | None, started: bool, prices: PriceTable) -> Account:
    """What an attempt without an end spent. ``started``: the mark that is written before its start
    is there; without it, and without a log that says more, nothing ran that could have asked."""
    account = account_of(log, prices)
    if account.requests is None and not started:
        return Account(0, NOTHING.tokens, NOTHING.estimate, account.whole)
    return account


def _priced(lines: Iterable[Mapping[str, Any]], prices: PriceTable) -> tuple[Tokens | None, Cost]:
    asked: dict[int, str] = {}
    answers: dict[int, Mapping[str, Any]] = {}
    for line in lines:
        number = line.get("request")
        if line["kind"] == "answer":
            answers[int(line["request"])] = line
        elif line["kind"] == "decision" and line["decision"] == "allowed" and number is not None:
            path = str((line.get("asked") or {}).get("path")).partition("?")[0]
            # Counting tokens costs nothing.
            if path == MESSAGES_PATH:
                asked[int(number)] = str((line.get("said") or {}).get("model"))
    total = Decimal(0)
    sums = [0, 0, 0, 0]
    measured = True
    entries: dict[str, None] = {}
    unpriced: dict[str, None] = {}
    for number, model in asked.items():
        answer = answers.get(number)
        if answer is not None and answer.get("message") is None and answer.get("end") == "whole":
            # An error of the provider's: it gave no message, so it took no tokens.
            continue
        name = (answer or {}).get("model_served") or model
        tokens = tokens_of((answer or {}).get("usage") or {})
        if tokens is None:
            measured = False
            unpriced[name] = None
            continue
        for place, count in enumerate(
            (tokens.input, tokens.output, tokens.cache_write, tokens.cache_read)
        ):
            sums[place] += count
        rates = prices.rates(name)
        cost = None if rates is None else dollars(tokens, rates)
        if cost is None:
            unpriced[name] = None
        else:
            total += cost
            entries[prices.entry(name) or name] = None
    summed = Tokens(input=sums[0], output=sums[1], cache_write=sums[2], cache_read=sums[3])
    estimate: Cost = (
        Unknown(tuple(sorted(unpriced))) if unpriced else Estimated(total, tuple(sorted(entries)))
    )
    return summed if measured else None, estimate
