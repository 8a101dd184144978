"""The answer is the final line, compared as a set of words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.stream.answer import derive_answer, split_answers

STATUS = ("current HW-DR-0052", "draft HW-DR-0052")


@pytest.mark.parametrize(
    ("text", "answers", "expected"),
    [
        ("headwater", ("headwater", "other"), "headwater"),
        ("headwater", ("Headwater",), "Headwater"),
        ("headwater", ("present", "absent", "withheld"), None),
        ("headwater", (), None),
        ("Found it: HW-DR-0034 rules on this.\n\nmerge\n", ("merge", "stamp"), "merge"),
        ("Reasoning first.\n**merge**", ("merge",), None),
        ("HW-DR-0052 current", STATUS, "current HW-DR-0052"),
        ("draft   HW-DR-0052", STATUS, "draft HW-DR-0052"),
        ("draft \t HW-DR-0052", STATUS, "draft HW-DR-0052"),
        ("0052 current HW-DR-0052", STATUS, None),
        ("current", STATUS, None),
        ("Present.", ("present",), "present"),
        ("present..", ("present",), None),
        ("present!", ("present",), None),
        ("present,", ("present",), None),
        ("merge\n \t\n\n", ("merge",), "merge"),
        ("a\u00a0b", ("a b",), None),
        ("\u00c9", ("\u00e9",), None),
        (None, ("merge",), None),
        ("", ("merge",), None),
        ("yes yes no", ("yes no no",), None),
        ("no yes yes", ("yes no yes",), "yes no yes"),
        (".", ("", "merge"), None),
        ("merge\x0bstamp", ("stamp",), None),
    ],
    ids=["K01", "K02", "K03", "K04", "K05", "K07", "K08", "K09", "K09-tab", "K10", "K11", "K14",
         "K15-two", "K15-mark", "K15-comma", "K18", "K19-space", "K19-case", "K21", "empty",
         "multiset", "multiset-order", "period-alone", "newline-alone"],
)  # fmt: skip
def test_answer(text: str | None, answers: tuple[str, ...], expected: str | None) -> None:
    assert derive_answer(text, answers) == expected


words = st.lists(st.sampled_from(["yes", "No", "HW-DR-0052", "a.b"]), min_size=1, max_size=4)


@given(words, st.randoms(), st.sampled_from([" ", "  ", "\t", " \t "]), st.sampled_from(["", "."]))
def test_any_order_any_blanks_any_case(
    declared: list[str], random: object, gap: str, end: str
) -> None:
    shuffled = declared[:]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    final = "Some reasoning.\n" + gap + gap.join(shuffled).upper() + end + gap + "\n\n"
    answer = " ".join(declared)
    assert derive_answer(final, (answer,)) == answer
    assert derive_answer(final, (answer + " more",)) is None


def test_answers_of_one_line() -> None:
    assert split_answers("merge, stamp") == ("merge", "stamp")
    assert split_answers(" current HW-DR-0052 ,draft,, ") == ("current HW-DR-0052", "draft")
    assert split_answers("") == ()
