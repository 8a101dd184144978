"""Text that cannot change how the text around it looks."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from recorder.report.visible import one_line, visible


def test_what_hides_or_reorders_is_written_out() -> None:
    assert visible("a\u202eb\u200bc\x1b[31m\x00") == "a\\u202eb\\u200bc\\x1b[31m\\x00"
    assert visible("na\u00efve \u2713 \u65e5\u672c\n\tx") == "na\u00efve \u2713 \u65e5\u672c\n\tx"
    assert one_line("a\nb\tc") == "a\\nb\\tc"


@given(st.text())
def test_nothing_that_shows_nothing_is_left(text: str) -> None:
    shown = visible(text)
    assert visible(shown) == shown
    assert all(
        character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
        for character in shown
    )
    shown.encode("utf-8")


@given(st.text().filter(lambda text: text.isascii() and text.isprintable()))
def test_plain_text_is_left_as_it_is(text: str) -> None:
    assert one_line(text) == text
