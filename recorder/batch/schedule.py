"""Which sessions a batch has, what each is called, and in which order they start. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Slot:
    """One session of a batch before anything runs: which line, probe and repetition it is.

    ``line`` counts from 1, ``position`` is the probe's place in its line, from 1.
    """

    line: int
    position: int
    repetition: int
    name: str


def slots(lines: Sequence[tuple[str, str, int, int]], seed: int) -> tuple[Slot, ...]:
    """Every (line, probe, repetition) once, shuffled by the seed alone.

    ``lines`` are (tier, arm, probes, repetitions).
    """
    ordered = [
        Slot(number, position, repetition, f"L{number}-{tier}-{arm}-p{position}-r{repetition}")
        for number, (tier, arm, probes, repetitions) in enumerate(lines, start=1)
        for position in range(1, probes + 1)
        for repetition in range(1, repetitions + 1)
    ]
    random.Random(seed).shuffle(ordered)  # noqa: S311 - an order to repeat, not a secret
    return tuple(ordered)


def count(lines: Sequence[tuple[str, str, int, int]]) -> int:
    """How many ``slots`` there are, without naming them: a number in a file can say any count."""
    return sum(probes * max(repetitions, 0) for _, _, probes, repetitions in lines)
