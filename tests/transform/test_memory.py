"""Memory stays flat: the peak is bounded by the longest line, whatever the stream's length."""

from __future__ import annotations

import pytest

from tests.bench.transform_bench import FIXED_BYTES, MEGABYTE, measured_apart


def test_one_line_of_many_megabytes_is_held_less_than_three_times() -> None:
    measured = measured_apart("one-long-line", 100 * MEGABYTE)
    assert measured.byte_count > 99 * MEGABYTE
    assert measured.peak_bytes < 3 * measured.longest_line + FIXED_BYTES


@pytest.mark.usefixtures("shared")
def test_many_lines_of_a_megabyte_leave_nothing_behind() -> None:
    measured = measured_apart("81-big-lines", 200 * MEGABYTE)
    assert measured.byte_count > 190 * MEGABYTE
    assert measured.peak_bytes < 3 * measured.longest_line + FIXED_BYTES
