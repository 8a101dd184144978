"""Splitting a stream: on ``\\n`` alone, in any chunking, and UTF-8 checked."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from recorder.stream.lines import (
    UTF8_WINDOW,
    first_byte_not_utf8,
    replace_lone_surrogates,
    split_lines,
)

chunkings = st.lists(st.binary(max_size=12) | st.sampled_from([b"\n", b"a\nb", b""]), max_size=12)


@given(chunkings)
def test_lines_are_what_lies_between_newlines(chunks: list[bytes]) -> None:
    whole = b"".join(chunks)
    expected = whole.split(b"\n")
    last = expected.pop()
    lines = [(bytes(line), ended) for line, ended in split_lines(chunks)]
    assert lines == [(line, True) for line in expected] + ([(last, False)] if last else [])


def test_only_newline_ends_a_line() -> None:
    text = "a\rb\x0bc\x0cd\x1ce\x85f\u2028g\u2029h".encode()
    assert [bytes(line) for line, _ in split_lines([text + b"\n"])] == [text]


@given(st.binary(max_size=40))
def test_the_first_byte_that_is_not_utf8_is_found(line: bytes) -> None:
    try:
        line.decode("utf-8")
        expected = None
    except UnicodeDecodeError as error:
        expected = error.start
    assert first_byte_not_utf8(line) == expected


def test_a_character_across_the_window_is_whole() -> None:
    line = b"x" * (UTF8_WINDOW - 1) + "é".encode() + b"x" * 10
    assert first_byte_not_utf8(line) is None
    cut = b"x" * (UTF8_WINDOW - 1) + b"\xc3"
    assert first_byte_not_utf8(cut) == UTF8_WINDOW - 1


surrogate_text = st.text(
    st.sampled_from('a\\"u\n\ud800\udc00\udbff\udfff\u00e9\U0001f600d8'), max_size=12
)


@given(surrogate_text)
def test_half_pairs_become_the_replacement_character(text: str) -> None:
    line = json.dumps({"v": text}).encode()
    repaired = replace_lone_surrogates(line)
    # What json.loads joins (a high half printed just before a low half) is a whole character.
    joined: str = json.loads(line)["v"]
    expected = "".join("\ufffd" if 0xD800 <= ord(c) <= 0xDFFF else c for c in joined)
    assert json.loads(line if repaired is None else bytes(repaired))["v"] == expected
    assert (repaired is None) == (expected == joined)
