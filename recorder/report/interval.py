"""The interval that is printed beside a rate. Pure."""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist

CONFIDENCE = 0.95


def wilson(count: int, total: int, confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Wilson's score interval of ``count`` in ``total``; None for no session at all.

    Raises ValueError where ``count`` is not between 0 and ``total``.
    """
    if not 0 <= count <= total:
        raise ValueError(f"{count} of {total} is no rate")
    if total == 0:
        return None
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate, share = count / total, z * z / total
    middle = (rate + share / 2) / (1 + share)
    half = z / (1 + share) * sqrt(rate * (1 - rate) / total + share / (4 * total))
    # At the ends the square root takes away what the middle adds, but for rounding.
    low = 0.0 if count == 0 else max(0.0, middle - half)
    high = 1.0 if count == total else min(1.0, middle + half)
    return low, high


def newcombe(
    first: tuple[int, int], second: tuple[int, int], confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    """Newcombe's hybrid score interval of the second rate less the first; each a count of a total.

    Of R. G. Newcombe, Interval estimation for the difference between independent proportions,
    Statistics in Medicine 17 (1998), method 10: from Wilson's limits of both, without a correction
    for continuity. None where either has no session at all.
    """
    one, other = wilson(*first, confidence), wilson(*second, confidence)
    if one is None or other is None:
        return None
    rate, against = second[0] / second[1], first[0] / first[1]
    (low, high), (low_against, high_against) = other, one
    difference = rate - against
    return (
        max(-1.0, difference - sqrt((rate - low) ** 2 + (high_against - against) ** 2)),
        min(1.0, difference + sqrt((high - rate) ** 2 + (against - low_against) ** 2)),
    )
