"""The interval beside a rate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.report.interval import wilson


@pytest.mark.parametrize(
    ("count", "total", "low", "high"),
    # Of Newcombe 1998, table I, method 3; the last by hand.
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (29, 29, 0.8830, 1.0),
    ],
)
def test_an_interval_is_the_published_one(count: int, total: int, low: float, high: float) -> None:
    found = wilson(count, total)
    assert found is not None
    assert found == pytest.approx((low, high), abs=6e-5)


def test_no_session_has_no_interval() -> None:
    assert wilson(0, 0) is None


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_an_interval_holds_its_rate_and_mirrors(pair: tuple[int, int]) -> None:
    count, total = pair
    low, high = wilson(count, total) or (2, 2)
    assert 0 <= low <= count / total <= high <= 1
    mirrored = wilson(total - count, total) or (2, 2)
    assert (low, high) == pytest.approx((1 - mirrored[1], 1 - mirrored[0]))


@pytest.mark.parametrize(("count", "total"), [(-1, 3), (4, 3)])
def test_what_is_no_rate_is_refused(count: int, total: int) -> None:
    with pytest.raises(ValueError, match="no rate"):
        wilson(count, total)
