"""What one pass over a stream sees, over every capture and over streams made here."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recorder.refusal import ExitCode, Refusal
from recorder.stream.observation import FaultKind, Observation, observe
from recorder.stream.whole import require_whole, whole_faults
from tests.stream.streams import blocks, call, init, line, outcome, result

NOT_STREAMS = {"net-attempts.jsonl", "provider-basic.jsonl"}


def captures(shared: Path) -> list[Path]:
    found = sorted((shared / "captures" / "claude-code").glob("*.jsonl"))
    return [path for path in found if path.name not in NOT_STREAMS]


def reference_calls(stream: bytes) -> list[tuple[str, str, bool]]:
    """The calls of a stream, read by the standard library alone."""
    seen = []
    for text in stream.split(b"\n"):
        read: Any = json.loads(text) if text else {}
        if read.get("type") != "assistant":
            continue
        for block in read["message"]["content"]:
            if block["type"] == "tool_use":
                given = block["input"]
                named = next(
                    (
                        given[key]
                        for key in ("file_path", "path", "notebook_path")
                        if isinstance(given, dict) and isinstance(given.get(key), str)
                    ),
                    None,
                )
                compact = json.dumps(given, separators=(",", ":"), ensure_ascii=False)
                argument = compact if named is None else named
                subagent = read.get("parent_tool_use_id") is not None
                seen.append((block["name"], argument, subagent))
    return seen


def test_every_capture_is_read_whole_and_gives_its_calls(shared: Path) -> None:
    paths = captures(shared)
    assert len(paths) > 50
    for path in paths:
        stream = path.read_bytes()
        observation = observe([stream])
        assert observation.whole, path.name
        assert observation.byte_count == len(stream)
        assert observation.inits, path.name
        calls = [(seen.tool, seen.argument, seen.subagent) for seen in observation.calls]
        assert calls == reference_calls(stream), path.name


@pytest.mark.parametrize("size", [1, 7, 4096, 65536])
def test_any_chunking_of_a_capture_gives_the_same_observation(shared: Path, size: int) -> None:
    for name in ("01-basic", "05-subagent-background", "82-bytes", "03-thinking"):
        stream = (shared / "captures" / "claude-code" / f"{name}.jsonl").read_bytes()
        chunks = (stream[at : at + size] for at in range(0, len(stream), size))
        assert observe(chunks) == observe([stream])


stream_pieces = st.lists(
    st.sampled_from(
        [
            init(),
            call("Read", {"file_path": "/workspace/é\u2028.md"}),
            call("Bash", {"command": "echo \U0001f600"}),
            outcome("toolu_1"),
            result(),
            b"\n",
            b"garbage\n",
            b"\xff\n",
            b'{"type":"assistant","mess',
        ]
    ),
    max_size=6,
)


@given(stream_pieces, st.lists(st.integers(0, 2000), max_size=8))
def test_any_chunking_gives_the_same_observation(pieces: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(pieces)
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    chunks = [stream[start:end] for start, end in pairwise(edges)]
    assert observe(chunks) == observe([stream])


@pytest.mark.parametrize(
    ("arguments", "argument", "path"),
    [
        ({"file_path": "a.md", "path": "b"}, "a.md", "a.md"),
        ({"pattern": "x", "path": "docs"}, "docs", "docs"),
        ({"notebook_path": "n.ipynb"}, "n.ipynb", "n.ipynb"),
        ({"file_path": None, "path": "b"}, "b", "b"),
        ({"file_path": None}, '{"file_path":null}', None),
        ({"b": 1, "a": [1, {"c": "ü"}]}, '{"b":1,"a":[1,{"c":"\\u00fc"}]}', None),
        ({}, "{}", None),
        ("text", '"text"', None),
        ({"file_path": 5}, '{"file_path":5}', None),
    ],
    ids=["L18-file", "L18-path", "L18-notebook", "L18-null", "L18-all-null", "order", "L19", "text",
         "not-text"],
)  # fmt: skip
def test_argument_rule(arguments: Any, argument: str, path: str | None) -> None:
    (seen,) = observe([init(), call("Any", arguments)]).calls
    assert (seen.argument, seen.path) == (argument, path)


def test_numbers_and_key_order_of_an_input_stay_as_the_stream_spelled_them() -> None:
    stream = call("T", {}).replace(b'"input": {}', b'"input": { "z" : 1.50, "a":1e22 }')
    (seen,) = observe([stream]).calls
    assert seen.argument == '{"z":1.50,"a":1e22}'


def test_outcomes_are_matched_by_id_whatever_their_order() -> None:
    stream = [
        init(),
        call("A", {}, "one"),
        call("B", {}, "two"),
        call("C", {}, "three"),
        outcome("two", failed=True),
        outcome("one"),
    ]
    assert [seen.failed for seen in observe(stream).calls] == [False, True, None]


def test_subagent_calls_are_in_stream_order_and_marked() -> None:
    stream = [init(), call("Agent", {}), call("Bash", {}, "b", parent="toolu_1"), call("Read", {})]
    calls = observe(stream).calls
    assert [(seen.tool, seen.subagent) for seen in calls] == [
        ("Agent", False),
        ("Bash", True),
        ("Read", False),
    ]


def test_a_new_tag_is_dropped_and_counted() -> None:
    stream = [
        init(),
        blocks({"type": "server_tool_use", "name": "web_search", "input": {}}, {"text": "x"}),
        call("Read", {"file_path": "a"}),
    ]
    observation = observe(stream)
    assert len(observation.calls) == 1
    assert observation.dropped_blocks == (("(no tag)", 1), ("server_tool_use", 1))


def test_an_admitted_tag_without_a_mapping_stops_the_pass_and_is_named() -> None:
    stream = [init(), blocks({"type": "redacted_thinking", "data": "x"})]
    with pytest.raises(Refusal, match="redacted_thinking") as refused:
        observe(stream, frozenset({"tool_use", "redacted_thinking"}))
    assert refused.value.code is ExitCode.OBSERVATION


def test_the_last_of_several_results_counts() -> None:
    observation = observe([init(), result("first"), init(model="other"), result("second")])
    assert observation.final_text == "second"
    assert len(observation.inits) == 2


def test_an_api_error_is_told_from_success() -> None:
    error = observe([init(), result("API Error: 400", is_error=True)])
    assert error.result is not None
    assert error.result.api_error
    assert error.final_text is None
    fine = observe([init(), result()])
    assert fine.result is not None
    assert not fine.result.api_error


def test_the_turn_cap_is_seen(shared: Path) -> None:
    stream = (shared / "captures" / "claude-code" / "55-max-turns.jsonl").read_bytes()
    observation = observe([stream])
    assert observation.capped
    assert len(observation.calls) == 3


def test_hooks_lifecycle_lines_denials_and_rehearsal_are_counted(shared: Path) -> None:
    stream = shared / "captures" / "claude-code" / "13-hooks-include-events.jsonl"
    assert ("PreToolUse", 2) in observe([stream.read_bytes()]).hook_events
    made = [
        init(),
        line(type="system", subtype="command_lifecycle"),
        line(type="command_lifecycle"),
        blocks({"type": "text", "text": "x"}, message_id="msg_rehearsal_1"),
        result(permission_denials=[{"tool_name": "Bash"}]),
    ]
    observation = observe(made)
    assert observation.command_lifecycle_lines == 2
    assert observation.rehearsal
    assert observation.result is not None
    assert observation.result.permission_denials == ("Bash",)


def test_system_lines_of_any_shape_are_passed_over() -> None:
    stream = [
        init(),
        line(type="system", subtype="permission_denied", message="text"),
        line(type="new", subtype={"a": 1}, message=[1]),
        line(type="user", message={"content": [1, 2]}),
        line(type=5),
    ]
    observation = observe(stream)
    assert observation.whole


def test_half_a_surrogate_pair_in_any_field_is_read() -> None:
    stream = [
        init(),
        outcome("a").replace(b'"x"', b'"cut \\ud83d"'),
        call("Read", {"file_path": "x"}).replace(b'"x"', b'"a\\udc00b\\\\ud800"'),
        result().replace(b"ANSWER", b"\\ud83dANSWER"),
    ]
    observation = observe(stream)
    assert observation.whole
    assert observation.calls[0].path == "a\ufffdb\\ud800"
    assert observation.final_text == "\ufffdANSWER: 42"


@pytest.mark.parametrize(
    ("stream", "kind", "words"),
    [
        (b"", None, "is empty"),
        (b"hello\n", FaultKind.NOT_JSON, "is not JSON"),
        (init() + b"hello\n" + result(), FaultKind.NOT_JSON, "line 2, is not JSON"),
        (init() + b"[1]\n", FaultKind.NOT_OBJECT, "is not a JSON object"),
        (init() + b'{"type":"x\xff"}\n', FaultKind.NOT_UTF8, "is not UTF-8 (byte 11)"),
        (init() + b"\xff\xfe\n", FaultKind.NOT_UTF8, "is not UTF-8 (byte 1)"),
        (init() + b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}\n", FaultKind.TOO_DEEP, "too deeply"),
        (
            init() + line(type="assistant", message={"content": [{"type": "tool_use"}]}),
            FaultKind.MISSHAPEN,
            "without a name",
        ),
        (init() + b"a" * 10, FaultKind.NOT_JSON, "is not JSON"),
        (init() + call("Read", {})[:-20], None, "is cut after"),
        (init() + '{"type":"é'.encode()[:-1], None, "is cut after"),
        (result(), None, "no init line"),
    ],
    ids=["nothing", "garbage", "garbage-inside", "array", "utf8", "utf8-garbage", "deep", "block",
         "tail", "cut", "cut-in-character", "no-init"],
)  # fmt: skip
def test_what_is_not_whole_says_why(stream: bytes, kind: FaultKind | None, words: str) -> None:
    observation = observe([stream])
    bad = observation.first_bad_line
    assert (bad.kind if bad else None) == kind
    with pytest.raises(Refusal) as refused:
        require_whole(observation, need_result=False, name="raw.jsonl")
    assert refused.value.code is ExitCode.OBSERVATION
    assert len(refused.value.reasons) == 1
    assert words in refused.value.reasons[0]
    assert refused.value.reasons[0].startswith("raw.jsonl")
    assert "\n" not in refused.value.reasons[0]


def test_no_result_line_is_a_fault_only_where_one_is_needed(shared: Path) -> None:
    stream = (shared / "captures" / "claude-code" / "72-sigkill.jsonl").read_bytes()
    observation = observe([stream])
    assert require_whole(observation, need_result=False) is observation
    (reason,) = whole_faults(observation, need_result=True)
    assert "no result line" in reason


def test_a_whole_last_line_without_its_newline_is_whole() -> None:
    assert observe([init(), result().rstrip(b"\n")]).whole


def test_counts_are_not_given_for_a_stream_that_was_not_read_whole() -> None:
    stream = [init(), call("mcp__calc__add", {}), call("WebSearch", {}), call("Read", {})]
    whole = observe(stream)
    assert (whole.mcp_calls, whole.web_calls) == (1, 1)
    broken = observe([*stream, b"x\n"])
    assert (broken.mcp_calls, broken.web_calls) == (None, None)


@settings(max_examples=200)
@given(st.binary(max_size=200) | st.lists(st.binary(max_size=30), max_size=6).map(b"\n".join))
def test_no_input_raises(stream: bytes) -> None:
    observation: Observation = observe([stream])
    whole_faults(observation, need_result=True)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["type", "subtype", "message", "content", "id", "name", "input"])
                | st.text(max_size=3),
                inner,
                max_size=5,
            )
        ),
        max_leaves=10,
    ),
    st.sampled_from(["assistant", "user", "system", "result"]),
    st.sampled_from(["init", "success", None]),
)
def test_no_json_raises(value: Any, kind: str, subtype: str | None) -> None:
    members = value if isinstance(value, dict) else {"message": value}
    stream = line(**{**members, "type": kind, "subtype": subtype})
    whole_faults(observe([stream]), need_result=True)
