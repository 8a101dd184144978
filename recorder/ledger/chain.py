"""A ledger's lines as bytes: written, read, and held to their chain. Pure.

A line is one JSON object and a newline. ``previous`` is the SHA-256 of the line before it without
its newline, so ``sha256sum`` and ``jq`` check the chain. A last line without its newline was being
written when its driver ended: it is torn, and the writer cuts it. Anything else that is wrong is a
fault, with the line's number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Any

import msgspec

from recorder.ledger.entries import (
    START,
    Line,
    RunEnd,
    RunStart,
    SessionDecision,
    SessionEgress,
    SessionEnd,
    SessionStart,
    Unknown,
)
from recorder.refusal import ExitCode, Refusal

LEDGER = "ledger.jsonl"

# Milliseconds of the year 10,000, which no calendar here has.
LAST = 253_402_300_800_000

# A file of nothing but newlines has as many faults as bytes; whoever reads so many needs no more.
FAULTS = 1000

_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True)
class LineFault:
    """What is wrong with a line; ``number`` counts from 1."""

    number: int
    rule: str

    def __str__(self) -> str:
        return f"line {self.number}: {self.rule}"


@dataclass(frozen=True)
class Reading:
    """A ledger as it was read. ``size`` are the bytes of its whole lines, ``torn`` the rest.

    ``lines`` are those that could be read, in order; ``first`` is the first line's digest, empty
    where there is none, and ``last`` what the next has in ``previous``.
    """

    lines: tuple[Line, ...]
    size: int
    torn: bytes
    first: str
    last: str
    faults: tuple[LineFault, ...]


def encode(line: Line) -> bytes:
    """One line with its newline: members in declared order, no space."""
    return _ENCODER.encode(line) + b"\n"


def digest_of(data: bytes) -> str:
    return f"sha256:{sha256(data).hexdigest()}"


def read(data: bytes) -> Reading:
    """Read a ledger and hold each line to its form, its number, its run and the chain."""
    whole, newline, torn = data.rpartition(b"\n")
    found: list[Line] = []
    faults: list[LineFault] = []
    previous, run, first = START, 0, ""
    # After a gap the numbers are told from the line behind it: one fault, and not one a line.
    sequence = 0
    for number, text in enumerate(whole.split(b"\n") if newline else (), start=1):
        if len(faults) > FAULTS:
            faults.append(LineFault(number, "is not read, nor is any after it"))
            break
        line = _line_of(text)
        if isinstance(line, str):
            faults.append(LineFault(number, line))
            previous = digest_of(text)
            sequence += 1
            continue
        # A line that was cut can be the first of all: it is of the run that was about to begin.
        due = run + 1 if isinstance(line, RunStart) else max(run, 1)
        for wrong, rule in (
            (line.sequence != sequence + 1, f"sequence is {line.sequence}"),
            (line.previous != previous, "does not follow from the line before it"),
            (not 0 < line.ts < LAST, f"ts is {line.ts}"),
            (line.run != due, f"run is {line.run} and not {due}"),
            (_ENCODER.encode(line) != text, "is not in the form in which a ledger is written"),
        ):
            if wrong:
                faults.append(LineFault(number, rule))
        if isinstance(line, RunStart):
            run = line.run
        sequence = line.sequence
        previous = digest_of(text)
        first = first or previous
        found.append(line)
    return Reading(tuple(found), len(whole) + len(newline), torn, first, previous, tuple(faults))


def _line_of(text: bytes) -> Line | str:
    """A line, or the rule for which it is left out."""
    try:
        line = _DECODER.decode(text)
    except RecursionError:
        return "is no line of a ledger: it is nested too deep"
    except msgspec.MsgspecError as error:
        return f"is no line of a ledger: {error}"
    # One that could not be added to another would end whoever sums them.
    if not all(map(_is_spendable, _figures(line))):
        return "holds a sum of dollars that nobody can have spent"
    return line


def _figures(line: Line) -> Iterator[Decimal]:
    """Every sum of dollars that a line holds."""
    if isinstance(line, (SessionEgress, SessionDecision, SessionEnd)):
        if not isinstance(line.cost, Unknown):
            yield line.cost.usd
    elif isinstance(line, RunEnd):
        yield from (line.totals.usd, line.totals.reported_usd, line.totals.estimated_usd)
    elif isinstance(line, SessionStart) and line.reserved is not None:
        yield line.reserved


def _is_spendable(usd: Decimal) -> bool:
    """Whether it is a sum: text of a decimal can also say NaN, or 1E+999999999."""
    exponent = usd.as_tuple().exponent
    return isinstance(exponent, int) and -60 <= exponent <= 12 and 0 <= usd < 10**12


def require_sound(faults: Sequence[LineFault], name: str) -> None:
    """Refusal 19 for a ledger with a fault: each is named."""
    if faults:
        raise Refusal(ExitCode.CORRUPT, *(f"{name}: {fault}" for fault in faults[:20]))


@cache
def ledger_schema() -> dict[str, Any]:
    """The JSON Schema of a line, as the project ships it."""
    text = resources.files("recorder.ledger").joinpath("ledger.schema.json").read_text("utf-8")
    schema = json.loads(text)
    assert isinstance(schema, dict)  # noqa: S101 - the project's own file
    return schema
