"""The script: what it reads is what it says, and every fault of it has a line and a column."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from recorder.refusal import ExitCode, Refusal
from recorder.rehearsal import script as script_module
from recorder.rehearsal.script import (
    Caller,
    Cut,
    ErrorStatus,
    Failure,
    RepeatedFailure,
    Stall,
    Text,
    ToolUse,
    Turn,
    choose_conversation,
    choose_turn,
    credential,
    failure_at,
    load_script,
    place_workspace,
    read_credential,
)

SCHEMA = json.loads(
    Path(script_module.__file__).with_name("script.schema.json").read_text(encoding="utf-8")
)

# PyYAML writes the text "1e9" plain, because its YAML 1.1 reads no number in it; YAML 1.2 does.
texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1).filter(
    lambda text: not re.fullmatch(r"-?\d+(\.\d+)?[eE][-+]?\d+", text)
)
words = st.text("abcXYZ019-_", min_size=1, max_size=12)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
    | texts,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(words.filter(str.isalpha), inner, max_size=3)
    ),
    max_leaves=8,
)
blocks = st.one_of(
    st.builds(lambda text: {"text": text}, texts),
    st.builds(lambda text: {"thinking": text}, texts),
    st.builds(
        lambda name, given: {"tool_use": {"name": name, "input": given}},
        words.filter(str.isalpha),
        st.dictionaries(words.filter(str.isalpha), json_values, max_size=3),
    ),
)
seconds = st.integers(0, 3600)
failures = st.one_of(
    st.builds(
        lambda status, after: {"status": status, "retry_after": after},
        st.sampled_from([400, 401, 403, 404, 413, 429, 500, 529, "credit", "too-long"]),
        seconds,
    ),
    st.builds(lambda where: {"cut": where}, st.sampled_from(["before", "middle"])),
    st.builds(lambda pause: {"stall": pause}, seconds),
    st.builds(
        lambda kind, times: {"error_event": kind, "times": times},
        st.sampled_from(["overloaded_error", "api_error"]),
        st.just("always") | st.integers(1, 1000),
    ),
)
turns = st.lists(
    st.fixed_dictionaries(
        {"content": st.lists(blocks, max_size=3)},
        optional={
            "failures": st.lists(failures, max_size=3),
            "delay": seconds,
            "stop_reason": st.sampled_from(script_module.STOP_REASONS),
            "usage": st.fixed_dictionaries({}, optional={"output_tokens": st.integers(0, 10**6)}),
        },
    ),
    min_size=1,
    max_size=3,
)
matched = st.fixed_dictionaries({"match": words.filter(str.isalpha), "turns": turns})
probe_scripts = turns | st.fixed_dictionaries(
    {"turns": turns},
    optional={
        "sessions": st.lists(matched, max_size=2),
        "subagents": st.lists(matched, max_size=2),
    },
)
scripts = st.dictionaries(words.map("PROBE-{}".format), probe_scripts, min_size=1, max_size=2)


def refusal_of(text: str) -> Refusal | None:
    try:
        load_script(text, "script.yaml")
    except Refusal as refusal:
        return refusal
    return None


def written_block(block: script_module.Block) -> dict[str, Any]:
    if isinstance(block, Text):
        return {"text": block.text}
    if isinstance(block, ToolUse):
        return {"tool_use": {"name": block.name, "input": block.input}}
    return {"thinking": block.thinking}


@given(scripts, st.booleans())
def test_what_is_written_is_what_is_read(document: dict[str, Any], flow: bool) -> None:
    text = yaml.safe_dump(document, default_flow_style=flow, allow_unicode=True)
    read = load_script(text, "script.yaml")
    assert set(read.probes) == set(document)
    for probe, script in document.items():
        given_turns = script if isinstance(script, list) else script["turns"]
        for given_turn, turn in zip(given_turns, read.probes[probe].turns, strict=True):
            assert [written_block(block) for block in turn.content] == given_turn["content"]
            assert turn.delay == given_turn.get("delay", 0)
            assert len(turn.failures) == len(given_turn.get("failures", []))


@given(scripts)
def test_the_schema_accepts_what_is_read(document: dict[str, Any]) -> None:
    jsonschema.validate(document, SCHEMA)


@given(scripts, st.data())
def test_the_schema_and_the_reader_refuse_the_same_key(
    document: dict[str, Any], data: st.DataObject
) -> None:
    places = [node for node in nodes(document) if node is not document]
    place = data.draw(st.sampled_from(places))
    if data.draw(st.booleans()) or not place:
        place["surprise"] = 1
    else:
        del place[data.draw(st.sampled_from(sorted(place)))]
    accepted = jsonschema.Draft202012Validator(SCHEMA).is_valid(document)
    assert (refusal_of(yaml.safe_dump(document)) is None) is accepted


def nodes(value: Any, inside_input: bool = False) -> list[dict[str, Any]]:
    """Every mapping whose keys the script's form closes."""
    if isinstance(value, list):
        return [found for item in value for found in nodes(item, inside_input)]
    if not isinstance(value, dict) or inside_input:
        return []
    return [value] + [found for key, item in value.items() for found in nodes(item, key == "input")]


@given(st.text() | st.text("{}[]&*!|>'\"-: \n\tabc019.~<", max_size=60))
def test_no_text_makes_more_than_a_refusal(text: str) -> None:
    refusal = refusal_of(text)
    if refusal is not None:
        assert refusal.code is ExitCode.USAGE
        assert refusal.reasons
        assert all(re.match(r"script\.yaml:\d+:\d+: .", line) for line in refusal.reasons)
        assert not any("\n" in line for line in refusal.reasons)


TURN = "content: [{text: a}]"


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("", "1:1", "empty"),
        ("{}", "1:1", "empty"),
        ("- a", "1:1", "must be a mapping"),
        ("P: [{content: [}", "1:16", "not YAML"),
        ("P:\n\t- x", "2:1", "not YAML"),
        ("P: []", "1:4", "one turn at least"),
        ("P: 3", "1:4", "must be a mapping"),
        (f"P: [{{{TURN}}}]\nP: [{{{TURN}}}]", "2:1", "stands twice"),
        (f"P:\n  - {TURN}\n    contents: []", "3:5", "no key 'contents'"),
        ("P:\n  - failures: []", "2:5", "needs the key 'content'"),
        ("P:\n  - content:\n      - text: ''", "3:15", "text that is not empty"),
        ("P:\n  - content:\n      - text: 12", "3:15", "text that is not empty"),
        ("P:\n  - content:\n      - {text: a, thinking: b}", "3:9", "one key of"),
        ("P:\n  - content:\n      - tool_use: {input: {}}", "3:19", "needs the key 'name'"),
        ("P:\n  - content:\n      - tool_use: {name: A, input: [1]}", "3:36", "must be a mapping"),
        (f"P:\n  - failures: [{{status: 418}}]\n    {TURN}", "2:25", "must be one of"),
        (f"P:\n  - failures: [{{cut: never}}]\n    {TURN}", "2:22", "must be one of"),
        (f"P:\n  - failures: [{{stall: -1}}]\n    {TURN}", "2:24", "seconds"),
        (f"P:\n  - failures: [{{stall: 1000000000}}]\n    {TURN}", "2:24", "seconds"),
        (f"P:\n  - failures: [{{cut: before, times: 0}}]\n    {TURN}", "2:37", "whole number"),
        (f"P:\n  - failures: [{{cut: before, retry_after: 1}}]\n    {TURN}", "2:43", "status"),
        (f"P:\n  - {TURN}\n    repeat: true\n  - {TURN}", "2:5", "last turn only"),
        (f"P:\n  - {TURN}\n    usage: {{output: 1}}", "3:13", "no key 'output'"),
        (f"a~b:\n  - {TURN}", "2:3", "no probe id"),
        ("P: [{content: [{tool_use: {name: A, input: {x: &a [*a]}}}]}]", None, "deeply"),
        ("P: [{<<: {content: []}}]", "1:6", "merge"),
    ],
)
def test_a_fault_has_its_line_and_column(text: str, place: str | None, says: str) -> None:
    with pytest.raises(Refusal) as refused:
        load_script(text, "s.yaml")
    (reason,) = refused.value.reasons
    assert says in reason
    if place is not None:
        assert reason.startswith(f"s.yaml:{place}: "), reason


@pytest.mark.parametrize(
    "scalar",
    [
        "no",
        "Yes",
        "off",
        "012",
        "0x1F",
        "1_000",
        "1:30",
        "2025-11-10",
        ".inf",
        ".NaN",
        "~",
        "1e9",
        "1.5e9",
        "1.",
    ],
)
def test_a_scalar_that_reads_in_two_ways_is_refused_unquoted(scalar: str) -> None:
    form = "P: [{{content: [{{tool_use: {{name: A, input: {{x: {0}}}}}}}]}}]"
    with pytest.raises(Refusal, match="quotes"):
        load_script(form.format(scalar), "s")
    (block,) = load_script(form.format(f"'{scalar}'"), "s").probes["P"].turns[0].content
    assert block == ToolUse("A", {"x": scalar})


def test_every_fault_is_named_at_once() -> None:
    text = f"P:\n  - {TURN}\n    delay: x\nQ:\n  - {TURN}\n  - nothing\n"
    with pytest.raises(Refusal) as refused:
        load_script(text, "s")
    assert [line.split(" ")[0] for line in refused.value.reasons] == ["s:3:12:", "s:6:5:"]


def test_aliases_that_multiply_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 8)]
    with pytest.raises(Refusal, match="aliases"):
        load_script("\n".join(lines), "s")


def test_a_nesting_that_no_parser_follows_is_refused() -> None:
    with pytest.raises(Refusal, match="deeply"):
        load_script("P: " + "[" * 5000 + "]" * 5000, "s")


@given(
    st.lists(st.integers(1, 4) | st.none(), max_size=4),
    st.integers(0, 20),
)
def test_each_failure_takes_its_attempts_and_then_the_answer_comes(
    times: list[int | None], attempt: int
) -> None:
    kinds: list[Failure] = [Cut("before"), Stall(1.0), ErrorStatus("500"), Cut("middle")]
    repeated = [RepeatedFailure(kind, count) for kind, count in zip(kinds, times, strict=False)]
    turn = Turn(content=(), failures=tuple(repeated))
    sequence: list[object] = []
    for kind, count in zip(kinds, times, strict=False):
        sequence += [kind] * (count if count is not None else 100)
    expected = sequence[attempt] if attempt < len(sequence) else None
    assert failure_at(turn, attempt) == expected


def test_the_turn_is_the_number_of_answers_given() -> None:
    script = load_script("P: [{content: [{text: a}]}, {content: [{text: b}]}]", "s").probes["P"]
    conversation = choose_conversation(script, "session", "task")
    assert choose_turn(conversation, 0).content == (Text("a"),)
    assert choose_turn(conversation, 1).content == (Text("b"),)
    (after,) = choose_turn(conversation, 2).content
    assert isinstance(after, Text)
    assert "no further turn" in after.text


def test_a_repeated_last_turn_answers_for_ever() -> None:
    script = load_script("P: [{content: [{text: a}], repeat: true}]", "s").probes["P"]
    conversation = choose_conversation(script, "session", "task")
    assert choose_turn(conversation, 99).content == (Text("a"),)


def test_a_session_gets_the_first_variant_that_matches_its_name() -> None:
    script = load_script(
        "P:\n  turns: [{content: [{text: plain}]}]\n"
        "  sessions:\n"
        "    - {match: '*-absent-*-r1', turns: [{content: [{text: first}]}]}\n"
        "    - {match: '*-absent-*', turns: [{content: [{text: other}]}]}\n",
        "s",
    ).probes["P"]
    said = {
        session: choose_turn(choose_conversation(script, session, ""), 0).content
        for session in ("L1-c-present-p1-r1", "L2-c-absent-p1-r1", "L2-c-absent-p1-r2")
    }
    assert list(said.values()) == [(Text("plain"),), (Text("first"),), (Text("other"),)]


def test_a_subagent_is_known_by_its_first_message_and_two_are_told_apart() -> None:
    script = load_script(
        "P:\n  turns: [{content: [{text: main}]}]\n"
        "  subagents: [{match: COUNT, turns: [{content: [{text: sub}]}]}]\n",
        "s",
    ).probes["P"]
    one = choose_conversation(script, "s", "COUNT the lines")
    two = choose_conversation(script, "s", "COUNT the words")
    main = choose_conversation(script, "s", "the task")
    assert choose_turn(one, 0).content == (Text("sub"),)
    assert choose_turn(main, 0).content == (Text("main"),)
    assert len({one.name, two.name, main.name}) == 3


def test_a_probe_without_a_script_gets_the_default_or_nothing() -> None:
    with_default = load_script(f"default: [{{{TURN}}}]", "s")
    without = load_script(f"P: [{{{TURN}}}]", "s")
    assert with_default.of("Q") is not None
    assert without.of("Q") is None


@given(words, words)
def test_a_credential_says_who_asks(probe: str, session: str) -> None:
    assert read_credential(credential(probe, session)) == Caller(probe, session)


@pytest.mark.parametrize(
    "value", ["", "rehearsal-", "rehearsal-P", "rehearsal-P~", "rehearsal-~s", "sk-ant-P~s"]
)
def test_no_other_credential_is_taken(value: str) -> None:
    assert read_credential(value) is None


@given(texts, st.dictionaries(words, json_values, max_size=3))
def test_the_workspace_is_placed_in_values_and_nowhere_else(
    text: str, given_input: dict[str, Any]
) -> None:
    marked = text.replace("{workspace}", "") + "{workspace}/x"
    placed = place_workspace(
        ToolUse("{workspace}", {"{workspace}": [marked], "rest": given_input}), "/w"
    )
    assert isinstance(placed, ToolUse)
    assert placed.name == "{workspace}"
    assert placed.input["{workspace}"] == [marked.replace("{workspace}", "/w")]
    assert "{workspace}" not in json.dumps(list(placed.input.values()))
