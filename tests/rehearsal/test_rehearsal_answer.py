"""The answers: a strict client understands them, and each says that it is a rehearsal."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.rehearsal.answer import (
    RequestError,
    build_answer,
    encode_event,
    half_of,
    read_request,
    served_model,
    stream_events,
    whole_message,
)
from recorder.rehearsal.script import Text, Thinking, ToolUse, Turn, TurnUsage
from tests.rehearsal.strict_client import assemble, split_events

texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=200)
inputs = st.dictionaries(
    texts, st.none() | st.booleans() | st.integers() | texts | st.lists(texts), max_size=4
)
blocks = st.builds(Text, texts) | st.builds(Thinking, texts) | st.builds(ToolUse, texts, inputs)
turns = st.builds(lambda content: Turn(content=tuple(content)), st.lists(blocks, max_size=4))


def request_body(*answered: str, **members: Any) -> bytes:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "the task"}]
    for text in answered:
        messages.append({"role": "assistant", "content": [{"type": "text", "text": text}]})
        messages.append({"role": "user", "content": [{"type": "text", "text": "go on"}]})
    given_members = {"model": "claude-sonnet-4-5", "stream": True, "tools": [{"name": "Bash"}]}
    return json.dumps({**given_members, "messages": messages, **members}).encode()


REQUEST = read_request(request_body())


@given(turns)
def test_a_strict_client_assembles_the_same_message_either_way(turn: Turn) -> None:
    answer = build_answer(turn, REQUEST, seed="s", workspace="/workspace")
    stream = b"".join(encode_event(event) for event in stream_events(answer))
    assembly = assemble(split_events(stream))
    assert assembly.whole
    assert assembly.message == json.loads(json.dumps(whole_message(answer)))


@given(turns)
def test_an_interrupted_stream_is_a_true_beginning_without_an_end(turn: Turn) -> None:
    events = stream_events(build_answer(turn, REQUEST, seed="s", workspace="/workspace"))
    half = half_of(events)
    assert list(half) == list(events[: len(half)])
    assembly = assemble(split_events(b"".join(encode_event(event) for event in half)))
    assert assembly.message is not None
    assert not assembly.whole
    assert not assembly.stopping
    if turn.content:
        assert assembly.message["content"] or assembly.open is not None


@given(turns, st.text(), st.text())
def test_identifiers_say_rehearsal_and_tell_attempts_apart(
    turn: Turn, seed: str, other: str
) -> None:
    answer = build_answer(turn, REQUEST, seed=seed, workspace="/w")
    assert answer == build_answer(turn, REQUEST, seed=seed, workspace="/w")
    assert re.fullmatch(r"msg_rehearsal[0-9a-f]{20}", answer.message_id)
    calls = [block["id"] for block in answer.content if block["type"] == "tool_use"]
    assert len(set(calls)) == len(calls)
    assert all(re.fullmatch(r"toolu_rehearsal[0-9a-f]{20}", str(call)) for call in calls)
    again = build_answer(turn, REQUEST, seed=other, workspace="/w")
    assert (again.message_id == answer.message_id) is (seed == other)


@pytest.mark.parametrize(
    ("requested", "served"),
    [
        ("claude-sonnet-4-5", "claude-sonnet-4-5-20250929"),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5-20251001"),
        ("claude-sonnet-4-5[1m]", "claude-sonnet-4-5-20250929"),
    ],
)
def test_the_served_model_is_dated(requested: str, served: str) -> None:
    assert served_model(requested) == served


def test_a_turn_with_a_call_stops_for_it_and_one_without_ends() -> None:
    call = Turn(content=(Text("a"), ToolUse("Bash", {})))
    said = Turn(content=(Text("a"),))
    capped = Turn(content=(Text("a"),), stop_reason="max_tokens")
    reasons = [
        build_answer(turn, REQUEST, seed="s", workspace="/w").stop_reason
        for turn in (call, said, capped)
    ]
    assert reasons == ["tool_use", "end_turn", "max_tokens"]


@given(st.lists(texts, max_size=5))
def test_the_position_is_the_number_of_answers_in_the_request(answered: list[str]) -> None:
    assert read_request(request_body(*answered)).position == len(answered)


def test_what_was_seen_before_is_read_from_the_cache() -> None:
    turn = Turn(content=(Text("a"),))
    first = read_request(request_body(system="x" * 4000))
    second = read_request(request_body("an answer", system="x" * 4000))
    cold = build_answer(turn, first, seed="s", workspace="/w").usage
    warm = build_answer(turn, second, seed="s", workspace="/w").usage
    assert cold.cache_read_input_tokens == 0
    assert cold.cache_creation_input_tokens > 1000
    assert warm.cache_read_input_tokens >= 1000
    assert warm.cache_creation_input_tokens < 100


def test_a_script_may_set_the_usage() -> None:
    turn = Turn(content=(Text("a"),), usage=TurnUsage(input_tokens=0, output_tokens=7))
    usage = build_answer(turn, REQUEST, seed="s", workspace="/w").usage
    assert (usage.input_tokens, usage.output_tokens) == (0, 7)
    assert usage.cache_creation_input_tokens > 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"model": "", "messages": [{"role": "user", "content": "x"}]}',
        b'{"model": "m", "messages": []}',
        b'{"model": "m", "messages": ["x"]}',
        b'{"model": "m", "messages": [{"content": "x"}]}',
    ],
)
def test_a_request_the_api_would_refuse_is_refused_in_its_words(body: bytes) -> None:
    with pytest.raises(RequestError) as refused:
        read_request(body)
    assert (refused.value.status, refused.value.kind) == (400, "invalid_request_error")


def test_a_request_without_tools_is_known() -> None:
    assert read_request(request_body()).has_tools
    assert not read_request(request_body(tools=[])).has_tools
