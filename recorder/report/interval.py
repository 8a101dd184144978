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
