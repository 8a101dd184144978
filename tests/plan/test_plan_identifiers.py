"""The grammar of identifiers: what it reads means what a regular expression means, and is cheap."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recorder.plan.declaration import IDENTIFIERS
from recorder.plan.identifiers import MOST_STEPS, PatternError, compile_identifiers

classes = st.sampled_from(["A", "-", "[A-C]", "[AB-]", r"\d", r"\w", "[0-1]", r"\."])
repeats = st.sampled_from(["", "", "+", "?", "*", "{2}", "{1,3}"])
pieces = st.builds(str.__add__, classes, repeats)
plain = st.lists(pieces, min_size=1, max_size=3).map("".join)
groups = st.lists(plain, min_size=1, max_size=3).map(lambda many: f"(?:{'|'.join(many)})")
patterns = st.lists(st.one_of(pieces, groups), min_size=1, max_size=4).map("".join)


@given(patterns, st.text(st.sampled_from("ABC-01._ "), max_size=30))
def test_what_is_read_means_what_python_means(pattern: str, text: str) -> None:
    try:
        compiled = compile_identifiers(pattern)
    except PatternError:
        return
    meant = re.compile(pattern.encode(), re.ASCII)
    assert compiled.findall(text.encode()) == meant.findall(text.encode())


@pytest.mark.parametrize(
    "pattern",
    [
        IDENTIFIERS,
        "HW-[A-Z]+-[0-9]{4}",
        r"\b(?:ADR|RFC)-\d+\b",
        "HW-PROBE-[a-z0-9-]+",
        "[A-Z-]+-[0-9]{4}",
        "(?:SLU|HW)-(?:DEC|REF)-[0-9]{4}",
    ],
)
def test_patterns_of_corpora_are_read(pattern: str) -> None:
    assert compile_identifiers(pattern)


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("(A+)+B", "a group is repeated"),
        ("(?:A|B)*C", "a group is repeated"),
        ("A*A*A*B", "in too many ways"),
        ("[A-Z]+[A-Z]+1", "in too many ways"),
        ("(?:A+|A+)(?:A+|A+)(?:A+|A+)1", "in too many ways"),
        ("(?=A)B", "no group of alternatives"),
        (r"(A)\1", "no character"),
        ("A++", "another repeat"),
        ("A*?", "another repeat"),
        ("A{0,256}", "no repeat of 1 to 255"),
        ("A{3,2}", "no repeat"),
        ("A{0}", "no repeat"),
        ("[^A]", "everything else"),
        (".", "no place"),
        ("A|B", "no place"),
        ("^A$", "no place"),
        ("A)", "no place"),
        ("(?:A", "not closed"),
        ("[A", "ends in the middle"),
        ("A\\", "ends in the middle"),
        ("[]", "empty"),
        ("[Z-A]", "a range that is none"),
        ("é", "no character"),
        ("A B", "no character"),
        ("A?", "the empty text"),
        ("", "the empty text"),
        ("A" * 401, "longer than"),
    ],
)
def test_what_is_not_read_says_why(pattern: str, says: str) -> None:
    with pytest.raises(PatternError, match=re.escape(says)):
        compile_identifiers(pattern)


@settings(deadline=None)
@given(patterns, st.sampled_from("ABC-01"), st.sampled_from("ABC-01"))
def test_no_pattern_that_is_read_holds_anybody_up(pattern: str, one: str, two: str) -> None:
    try:
        compiled = compile_identifiers(pattern)
    except PatternError:
        return
    text = (one * 40 + two) * 200
    began = time.process_time()
    compiled.findall(text.encode())
    # 20 nanoseconds a step is several times what the slowest took.
    assert time.process_time() - began < len(text) * MOST_STEPS * 20e-9
