"""A content block has one digest, streamed, whole or told back; the secret never passes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.witness import (
    AnswerReader,
    Histories,
    SecretCutter,
    bare_digest,
    block_digest,
    canonical,
    digest,
    request_members,
)

TEXT = {"type": "text", "text": "Hello, world"}
THINKING = {"type": "thinking", "thinking": "Let me see", "signature": "c2ln"}
TOOL = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls", "n": 1.5}}


def event(value: dict[str, Any]) -> bytes:
    return f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode()


def delta(index: int, kind: str, **members: Any) -> bytes:
    return event(
        {"type": "content_block_delta", "index": index, "delta": {"type": kind, **members}}
    )


def start(index: int, block: dict[str, Any]) -> bytes:
    return event({"type": "content_block_start", "index": index, "content_block": block})


def stop(index: int) -> bytes:
    return event({"type": "content_block_stop", "index": index})


STREAM = b"".join(
    [
        event(
            {
                "type": "message_start",
                "message": {
                    "id": "msg_1",
                    "model": "claude-opus-5-20250929",
                    "usage": {"input_tokens": 5, "output_tokens": 1},
                },
            }
        ),
        start(0, {"type": "thinking", "thinking": "", "signature": ""}),
        delta(0, "thinking_delta", thinking="Let me "),
        delta(0, "thinking_delta", thinking="see"),
        delta(0, "signature_delta", signature="c2ln"),
        stop(0),
        event({"type": "ping"}),
        start(1, {"type": "text", "text": ""}),
        delta(1, "text_delta", text="Hello, "),
        delta(1, "text_delta", text="world"),
        stop(1),
        start(2, {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}),
        delta(2, "input_json_delta", partial_json='{"n": 1.5, "com'),
        delta(2, "input_json_delta", partial_json='mand": "ls"}'),
        stop(2),
        event(
            {
                "type": "message_delta",
                "delta": {"stop_reason": "tool_use"},
                "usage": {"output_tokens": 34, "server_tool_use": {"web_search_requests": 0}},
            }
        ),
        event({"type": "message_stop"}),
    ]
)


def read(data: bytes, sizes: list[int], *, event_stream: bool = True) -> dict[str, Any]:
    reader = AnswerReader(event_stream)
    at = 0
    for size in sizes:
        reader.feed(data[at : at + size] or b"\n" * event_stream or b" ")
        at += size
    reader.feed(data[at:])
    reader.feed(b"")
    return reader.members()


@given(st.lists(st.integers(1, 200), max_size=30))
def test_a_stream_is_read_the_same_in_any_split(sizes: list[int]) -> None:
    members = read(STREAM, sizes)
    assert members["message"] == "msg_1"
    assert members["model_served"] == "claude-opus-5-20250929"
    assert members["stop_reason"] == "tool_use"
    assert members["whole"]
    assert members["usage"] == {
        "input_tokens": 5,
        "output_tokens": 34,
        "server_tool_use": {"web_search_requests": 0},
    }
    assert [block["digest"] for block in members["blocks"]] == [
        block_digest(THINKING),
        block_digest(TEXT),
        block_digest(TOOL),
    ]
    assert members["blocks"][2]["id"] == "toolu_1"


def test_a_whole_answer_has_the_digests_of_the_streamed_one() -> None:
    message = {
        "type": "message",
        "id": "msg_1",
        "model": "claude-opus-5-20250929",
        "content": [THINKING, TEXT, TOOL],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 5},
    }
    whole = read(json.dumps(message).encode(), [], event_stream=False)
    assert whole["blocks"] == read(STREAM, [])["blocks"]
    assert whole["whole"]


def test_a_block_told_back_has_the_digest_of_the_answer() -> None:
    told = {
        "model": "claude-opus-5",
        "messages": [
            {"role": "user", "content": "Do it"},
            {
                "role": "assistant",
                "content": [THINKING, TEXT, {**TOOL, "cache_control": {"type": "ephemeral"}}],
            },
        ],
    }
    members = request_members(told)
    assert members["messages"][0] == ["user", block_digest({"type": "text", "text": "Do it"})]
    assert members["messages"][1][1:] == [block["digest"] for block in read(STREAM, [])["blocks"]]


def test_a_head_is_the_system_and_the_model_and_not_what_moves_in_a_conversation() -> None:
    base: dict[str, Any] = {"model": "m", "system": [{"type": "text", "text": "a"}], "messages": []}
    first = request_members(base)
    head = first["head"]
    marked = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    billing = {"type": "text", "text": "x-anthropic-billing-header: cch=1; cc_prev_req=req_1;"}
    tooled = request_members({**base, "tools": [{"name": "x"}]})
    assert request_members({**base, "system": [marked]})["head"] == head
    assert request_members({**base, "system": [billing, marked]})["head"] == head
    assert request_members({**base, "system": "b"})["head"] != head
    assert request_members({**base, "model": "n"})["head"] != head
    assert tooled["head"] == head
    assert tooled["tools_digest"] != first["tools_digest"]
    assert request_members({**base, "messages": [{"role": "user", "content": "x"}]})["head"] == head


def test_a_stream_that_breaks_off_is_not_whole() -> None:
    cut = STREAM[: STREAM.index(b"event: message_delta")]
    members = read(cut, [])
    assert not members["whole"]
    assert len(members["blocks"]) == 3


def test_a_text_that_was_underway_when_the_answer_broke_off_is_noted_as_far_as_it_came() -> None:
    members = read(STREAM[: STREAM.index(b"world")] + b'"}}\n', [])
    assert members["blocks"][1]["broken_off"]
    assert members["blocks"][1]["digest"] == block_digest({"type": "text", "text": "Hello, "})


def test_usage_is_kept_as_it_began_and_as_it_ended() -> None:
    members = read(STREAM, [])
    assert members["usage_start"] == {"input_tokens": 5, "output_tokens": 1}
    assert members["usage"]["output_tokens"] == 34


@pytest.mark.parametrize(
    ("given", "kept"),
    [(1.0, 1), (12345678901234567890, 12345678901234567000), (1e21, 10**21), ([2.0], [2])],
)
def test_numbers_are_those_that_the_harness_can_hold(given: object, kept: object) -> None:
    assert canonical({"n": given}) == canonical({"n": kept})


@pytest.mark.parametrize(
    ("given", "form", "becomes"),
    [
        ("a  \nb\t\r\n\n  ", "trailing", "a\nb\r\n\n"),
        ("cd /workspace && ls", "directory", "ls"),
        ("5000", "parsed", 5000),
        ("true", "parsed", True),
        ("a\\u2014b", "escapes", "a\u2014b"),
    ],
)
def test_a_members_digests_foresee_how_the_harness_changes_it(
    given: str, form: str, becomes: object
) -> None:
    reader = AnswerReader(event_stream=False)
    block = {**TOOL, "input": {"member": given}}
    reader.feed(json.dumps({"type": "message", "id": "m", "content": [block]}).encode())
    reader.feed(b"")
    forms = reader.members()["blocks"][0]["input"]["member"]
    assert forms[form] == digest(becomes)
    assert forms["given"] == digest(given)


def test_a_member_with_a_long_name_is_logged_by_its_digest() -> None:
    reader = AnswerReader(event_stream=False)
    prose = "a name that says more than a name does"
    block = {**TOOL, "input": {prose: 1}}
    reader.feed(json.dumps({"type": "message", "id": "m", "content": [block]}).encode())
    reader.feed(b"")
    assert list(reader.members()["blocks"][0]["input"]) == [digest(prose)]


def test_a_result_has_a_digest_without_the_reminders_hung_on_it() -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "one\t"}
    hung = {**result, "content": "one\n\n<system-reminder>\nmind\n</system-reminder>"}
    listed = {**result, "content": [{"type": "text", "text": hung["content"]}]}
    told = request_members({"messages": [{"role": "user", "content": [hung, listed]}]})
    assert [entry[1:] for entry in told["messages"][0][1:]] == [
        [bare_digest(result), "toolu_1"]
    ] * 2
    alone = {"type": "text", "text": "<system-reminder>x</system-reminder>"}
    assert bare_digest(alone) == ""


def test_only_what_no_earlier_request_told_is_logged_again() -> None:
    histories = Histories()
    first = {"messages": [["user", "a"]]}
    second = {"messages": [["user", "a"], ["assistant", "b"], ["user", "c"]]}
    other = {"messages": [["user", "z"]]}
    assert histories.shorten(1, first)["follows"] is None
    assert histories.shorten(2, other)["follows"] is None
    short = histories.shorten(3, second)
    assert short["follows"] == {"request": 1, "messages": 1}
    assert short["messages"] == second["messages"][1:]


def test_what_is_kept_of_earlier_requests_is_bounded_by_its_blocks() -> None:
    histories = Histories()
    long = {"messages": [["user", *["a"] * (Histories.BLOCKS // 2)]]}
    assert histories.shorten(1, long)["follows"] is None
    assert histories.shorten(2, {"messages": [["user", "z"]]})["follows"] is None
    # Together with another of its kind the first is too much, and the oldest goes.
    other = {"messages": [["user", *["b"] * (Histories.BLOCKS // 2)]]}
    assert histories.shorten(3, other)["follows"] is None
    assert histories.shorten(4, long)["follows"] is None
    assert histories.shorten(5, {"messages": [["user", "q"]]})["follows"] is None


def test_an_error_answer_is_named_by_its_type_alone() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "prose"}}
    for data, stream in ((json.dumps(error).encode(), False), (event(error), True)):
        members = read(data, [], event_stream=stream)
        assert members["error"] == "overloaded_error"
        assert "prose" not in json.dumps(members)


@given(st.binary(max_size=300), st.booleans())
def test_no_answer_raises(data: bytes, event_stream: bool) -> None:
    read(data, [7, 11], event_stream=event_stream)
    read(b"data: " + data + b"\n\n", [3], event_stream=event_stream)


@given(
    st.lists(st.sampled_from([b"", b"s", b"se", b"secret", b"cret", b"x", b"ecret-k", b"ey"])),
    st.binary(max_size=5),
)
def test_the_secret_never_passes_and_nothing_else_is_lost(pieces: list[bytes], tail: bytes) -> None:
    secret = b"secret-key"
    cutter = SecretCutter(secret)
    data = b"".join(pieces) + tail
    out = b"".join(cutter.feed(piece) for piece in [*pieces, tail] if piece) + cutter.feed(b"")
    assert secret not in out
    assert cutter.found == (secret in data)
    assert out == data.partition(secret)[0]


def test_nothing_but_a_beginning_of_the_secret_is_held_back() -> None:
    cutter = SecretCutter(b"secret-key")
    assert cutter.feed(b"a token") == b"a token"
    assert cutter.feed(b"and sec") == b"and "
    assert cutter.feed(b"ond") == b"second"
