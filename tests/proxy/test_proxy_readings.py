"""A body that passes has one reading, and no reader finds in it what the policy does not name."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from proxy.decision import Allowed, BodyFacts, Refused, decide, json_text
from tests.proxy.cases import CASES, POLICY
from tests.proxy.readings import READERS, NotJsonError, exact, reaches_out

PLAIN = next(reader for reader in READERS if reader.key is exact and reader.last_wins)

_TOP = ("system", "messages", "metadata", "system", "messages", "tools", "thinking", "mcp_servers")
_WORDS = (
    *("type", "source", "url", "file_id", "input", "input_schema", "content", "text", "x"),
    *("type", "source", "content", "text", "x", "name", "tools", "model", "container"),
)
_KINDS = (
    *("url", "file", "tool_use", "tool_result", "image", "document", "text", "custom", "base64"),
    *("text", "tool_use", "base64", "container_upload", "web_search_20250305", "mcp_toolset"),
)


def _spellings(word: str) -> st.SearchStrategy[str]:
    """A word as JSON text, as it is most of the time, else in a spelling that some reader takes
    for it: escapes, another case, a null and more behind it, spaces, letters that look alike."""
    plain = json.dumps(word)
    return st.sampled_from(
        [plain] * 60
        + [
            json.dumps(word.upper()),
            json.dumps(word.capitalize()),
            plain[:-1] + '\\u0000"',
            plain[:-1] + '\\u0000x"',
            f'" {word}"',
            f'"{word} "',
            f'"\\u{ord(word[0]):04x}{word[1:]}"',
            f'"{chr(ord(word[0]) + 0xFEE0)}{word[1:]}"',
            plain.replace("s", "\u017f"),
            plain.replace("i", "\u0131"),
            plain[:-1] + '\\ud800"',
            plain[:-1] + '\\u200b"',
        ]
    )


_scalars = st.one_of(
    st.sampled_from(_KINDS).flatmap(_spellings),
    st.sampled_from(["true", "null", "0", "-0", "1.0", "{}", "[]", '"\\ud83d\\ude00"'] * 4
                    + ["1e400", "NaN", '"\\ud800"', '"\\udc00\\ud800"']),
)  # fmt: skip
_keys = st.sampled_from(_WORDS).flatmap(_spellings)


def _objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.lists(st.tuples(_keys, values), max_size=4)
    return pairs.map(lambda found: "{" + ",".join(f"{key}:{value}" for key, value in found) + "}")


_values = st.recursive(
    _scalars,
    lambda inner: (
        _objects(inner)
        | st.lists(inner, max_size=3).map(lambda items: "[" + " , ".join(items) + "]")
    ),
    max_leaves=8,
)
_HEAD = '"model":"claude-opus-5","max_tokens":10'
_members = st.lists(
    st.tuples(st.sampled_from(_TOP).flatmap(_spellings), _values), min_size=1, max_size=2
)
_bodies = _members.map(
    lambda found: "{" + ",".join([_HEAD, *(f"{key}:{value}" for key, value in found)]) + "}"
)


def check(data: bytes) -> bool:
    """One body, by everybody; whether it passes."""
    decision = decide(POLICY, BodyFacts(data))
    assert isinstance(decision, Allowed | Refused)
    if isinstance(decision, Refused):
        return False
    plain = PLAIN.read(data)
    assert plain == json.loads(json.dumps(decision.document))
    for reader in READERS:
        assert list(reaches_out(reader.read(data))) == [], reader.name
    return True


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@example('{"model":"claude-opus-5","system":[{"source":{"type":"base64","type\\u0000":"url"}}]}')
@example('{"model":"claude-opus-5","system":[{"source":[{"type":"url"}]}]}')
@example('{"model":"claude-opus-5","messages":[{"type":"tool_use","input":{"source":{"url":1}}}]}')
@given(_bodies)
def test_no_reader_finds_what_the_policy_does_not_name(body: str) -> None:
    check(body.encode("utf-8", "surrogatepass"))


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=10_000, suppress_health_check=list(HealthCheck), deadline=None)
@given(_bodies)
def test_no_reader_finds_what_the_policy_does_not_name_at_length(body: str) -> None:
    check(body.encode("utf-8", "surrogatepass"))


def test_the_bodies_that_are_tried_pass_often_enough_to_say_something() -> None:
    passed: list[bool] = []

    @settings(max_examples=300, suppress_health_check=list(HealthCheck), deadline=None,
              database=None, derandomize=True)  # fmt: skip
    @given(_bodies)
    def attempt(body: str) -> None:
        passed.append(check(body.encode("utf-8", "surrogatepass")))

    attempt()
    assert sum(passed) > len(passed) / 10


def test_the_second_opinion_sees_every_reach_that_a_case_names() -> None:
    named = {"server-tool", "body-mcp-servers", "body-container", "remote-source"}
    seen = 0
    for case in CASES:
        if isinstance(case.facts, BodyFacts) and case.expected in named:
            assert list(reaches_out(PLAIN.read(case.facts.body))), case.name
            seen += 1
    assert seen >= 5


@given(
    st.binary(max_size=40)
    | st.text(alphabet='{}[]":,\\u0019eE+-. tfn', max_size=30).map(str.encode)
)
def test_what_is_not_json_by_the_grammar_never_passes(data: bytes) -> None:
    head = b'{"model":"claude-opus-5","max_tokens":1,"system":'
    body = head + data + b"}"
    try:
        PLAIN.read(body)
    except NotJsonError:
        assert isinstance(decide(POLICY, BodyFacts(body)), Refused)


@given(st.text(alphabet='\\\\"ab{}[]:,u0\u00e9\u2026\U0001f600', max_size=20), st.booleans())
def test_a_long_body_means_the_same_whichever_way_its_text_is_held(text: str, whole: bool) -> None:
    quoted = json.dumps(text, ensure_ascii=False) if whole else f'"{text}"'
    for letter in ("\u2026", "\U0001f600", "\u00e9"):
        body = f'{{"a":{quoted},"b":"{letter}{"x" * (1 << 20)}"}}'.encode()
        assert meant(body, json_text) == meant(body, bytes.decode)


def meant(body: bytes, text_of: Callable[[bytes], str]) -> Any:
    try:
        return json.loads(text_of(body))
    except ValueError:
        return NotJsonError


def test_one_letter_does_not_make_a_long_text_wide() -> None:
    body = ('"\U0001f600' + "x" * (4 << 20) + '"').encode()
    assert sys.getsizeof(json_text(body)) < 1.1 * len(body)
    # Where nearly every letter is wide, escapes would take more.
    body = ('"' + "\u4e16\u754c" * (1 << 19) + '"').encode()
    assert sys.getsizeof(json_text(body)) < len(body)


@pytest.mark.parametrize("tail", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98"])
def test_a_long_body_that_is_no_utf_8_never_passes(tail: bytes) -> None:
    start = b'{"model":"claude-opus-5","system":"\xf0\x9f\x98\x80' + b"x" * (1 << 20)
    assert isinstance(decide(POLICY, BodyFacts(start + b'"}')), Allowed)
    assert isinstance(decide(POLICY, BodyFacts(start + tail + b'"}')), Refused)
    assert isinstance(decide(POLICY, BodyFacts(start + b'"}' + tail)), Refused)


def test_a_reader_reads_what_every_reader_reads() -> None:
    value: Any = {"a": [1.5, -2.0, True, None, {"b": "\u00e9\n\U0001f600"}], "c": {}}
    for reader in READERS:
        assert reader.read(json.dumps(value).encode()) == value
