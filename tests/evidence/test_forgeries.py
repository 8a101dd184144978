"""Forgeries planted in a real recorded pair. Each is caught, or counted where that is all one can.

The pair is recorded in the test session; a forgery changes one thing as somebody would who can
write raw.jsonl, or who turned the harness to a server of the session's own, or who has the
session's processes ask the provider themselves.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from proxy.witness import block_digest, digest
from recorder.evidence.corroboration import Corroboration, Disagreement, corroborate
from recorder.refusal import ExitCode, Refusal
from tests.evidence.conftest import Record
from tests.evidence.forging import Forgery, Line, Pair, answer_line, pair_of
from tests.evidence.scripted import TASK

pytestmark = pytest.mark.engine

ONLY_IN_STREAM = Disagreement.ONLY_IN_STREAM
FOREIGN_USED = Disagreement.FOREIGN_USED
CHANGED = Disagreement.CHANGED
LEFT_OUT = Disagreement.LEFT_OUT
NOT_TOLD = Disagreement.NOT_TOLD
ORDER = Disagreement.ORDER
RESULT = Disagreement.RESULT
SHAPE = Disagreement.SHAPE


@pytest.fixture(scope="session")
def pair(record: Record) -> dict[str, Pair]:
    """Pairs by the kind of their session, recorded when they are first asked for."""

    class Pairs(dict[str, Pair]):
        def __missing__(self, name: str) -> Pair:
            recording = record(name)
            self[name] = pair_of(recording.raw, recording.egress, recording.directory.name)
            return self[name]

    return Pairs()


def joined(forged: Pair) -> Corroboration:
    return corroborate(forged.raw_lines, forged.egress_lines, task=TASK, session=forged.name)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


# Lines added.


def a_text_of_no_answer(pair: Pair) -> None:
    line = copy.deepcopy(pair.holder("text"))
    line["message"] |= {"id": "msg_forged", "content": [text("I found it.")]}
    pair.raw.insert(-1, line)


def a_call_in_a_genuine_message(pair: Pair) -> None:
    line = copy.deepcopy(pair.holder("tool_use"))
    line["message"]["content"][0] |= {"id": "toolu_forged"}
    pair.raw.insert(pair.raw.index(pair.holder("tool_use")) + 1, line)


def a_genuine_line_twice(pair: Pair) -> None:
    line = pair.holder("tool_use")
    pair.raw.insert(pair.raw.index(line) + 1, copy.deepcopy(line))


def a_genuine_text_once_more_at_the_end(pair: Pair) -> None:
    pair.raw.insert(-1, copy.deepcopy(pair.holder("text")))


def a_result_of_no_call(pair: Pair) -> None:
    line, _ = next(pair.results())
    added = copy.deepcopy(line)
    added["message"]["content"][0]["tool_use_id"] = "toolu_forged"
    pair.raw.insert(pair.raw.index(line) + 1, added)


def a_genuine_result_twice(pair: Pair) -> None:
    line, _ = next(pair.results())
    pair.raw.insert(pair.raw.index(line) + 1, copy.deepcopy(line))


def a_call_in_the_harness_own_words(pair: Pair) -> None:
    line = copy.deepcopy(pair.holder("tool_use"))
    line["message"]["model"] = "<synthetic>"
    pair.raw.insert(-1, line)


def a_call_and_its_result(pair: Pair) -> None:
    call = copy.deepcopy(pair.holder("tool_use"))
    call["message"]["content"][0]["id"] = "toolu_forged"
    call["message"]["id"] = "msg_forged"
    line, _ = next(pair.results())
    result = copy.deepcopy(line)
    result["message"]["content"][0]["tool_use_id"] = "toolu_forged"
    pair.raw[-1:-1] = [call, result]


def a_line_of_another_harness_session(pair: Pair) -> None:
    line = copy.deepcopy(pair.raw[1])
    line["session_id"] = "00000000-0000-4000-8000-000000000000"
    pair.raw.insert(2, line)


def a_line_that_is_no_object(pair: Pair) -> None:
    pair.raw.insert(3, [])  # type: ignore[arg-type]


# Lines removed.


def without_the_first_call_and_its_result(pair: Pair) -> None:
    call = pair.holder("tool_use")
    line, _ = next(pair.results())
    pair.raw.remove(call)
    pair.raw.remove(line)


def without_the_last_answer(pair: Pair) -> None:
    last = pair.assistant[-1]
    pair.raw.remove(last)
    pair.result["result"] = ""


def without_the_beginning(pair: Pair) -> None:
    first, *_ = pair.assistant
    line, _ = next(pair.results())
    begin, end = pair.raw.index(first), pair.raw.index(line)
    del pair.raw[begin : end + 1]


def without_the_beginning_as_if_it_had_been_compacted(pair: Pair) -> None:
    without_the_beginning(pair)
    session = pair.raw[0]["session_id"]
    pair.raw.insert(1, {"type": "system", "subtype": "compact_boundary", "session_id": session})


# Lines in another order.


def two_messages_swapped(pair: Pair) -> None:
    lines = pair.assistant
    first, last = pair.raw.index(lines[0]), pair.raw.index(lines[-1])
    pair.raw[first], pair.raw[last] = pair.raw[last], pair.raw[first]


def a_result_before_its_call(pair: Pair) -> None:
    line, _ = next(pair.results())
    pair.raw.remove(line)
    pair.raw.insert(pair.raw.index(pair.assistant[0]), line)


def a_result_after_the_next_message(pair: Pair) -> None:
    line, _ = next(pair.results())
    at = pair.raw.index(line)
    pair.raw[at], pair.raw[at + 1] = pair.raw[at + 1], pair.raw[at]


def two_blocks_of_a_message_swapped(pair: Pair) -> None:
    at = pair.raw.index(pair.assistant[0])
    pair.raw[at], pair.raw[at + 1] = pair.raw[at + 1], pair.raw[at]


def results_of_parallel_calls_swapped(pair: Pair) -> None:
    (first, _), (second, _), *_ = pair.results()
    one, other = pair.raw.index(first), pair.raw.index(second)
    pair.raw[one], pair.raw[other] = second, first


# Members edited.


def another_text(pair: Pair) -> None:
    pair.block("text")["text"] += " It says 41."


def another_tool(pair: Pair) -> None:
    pair.block("tool_use")["name"] = "Grep"


def another_input(pair: Pair) -> None:
    pair.block("tool_use", "Bash")["input"]["command"] = "cat answers.txt"


def an_input_without_a_member(pair: Pair) -> None:
    del pair.block("tool_use", "Bash")["input"]["description"]


def an_input_with_one_more_member(pair: Pair) -> None:
    pair.block("tool_use", "Bash")["input"]["timeout"] = 5


def an_input_made_unparsable(pair: Pair) -> None:
    pair.block("tool_use", "Bash")["input"] = {"__unparsedToolInput": {"raw": "{", "len": 1}}


def an_added_member_with_another_value(pair: Pair) -> None:
    pair.block("tool_use", "Edit")["input"]["replace_all"] = True


def a_member_as_text_that_was_a_number(pair: Pair) -> None:
    pair.block("tool_use", "Bash")["input"]["description"] = 7


def an_input_that_is_a_list(pair: Pair) -> None:
    pair.block("tool_use", "Bash")["input"] = ["ls -1"]


def another_result(pair: Pair) -> None:
    _, block = next(pair.results())
    block["content"] = "1\t# input\n2\talpha = 31\n"


def a_failed_result_made_good(pair: Pair) -> None:
    _, block = next((line, b) for line, b in pair.results() if b.get("is_error") is True)
    block["is_error"] = False


def a_good_result_made_failed(pair: Pair) -> None:
    _, block = next(pair.results())
    block["is_error"] = True


def another_call_id_in_call_and_result(pair: Pair) -> None:
    call = pair.block("tool_use")
    _, block = next(pair.results())
    call["id"] = block["tool_use_id"] = "toolu_forged"


def another_message_id(pair: Pair) -> None:
    for line in pair.assistant:
        if line["message"]["id"] == pair.assistant[-1]["message"]["id"]:
            line["message"]["id"] = "msg_forged"


def the_message_id_of_another_answer(pair: Pair) -> None:
    pair.assistant[-1]["message"]["id"] = pair.assistant[0]["message"]["id"]


def another_request_id(pair: Pair) -> None:
    pair.assistant[-1]["request_id"] = "req_forged"


def another_model(pair: Pair) -> None:
    for line in pair.assistant:
        line["message"]["model"] = "claude-opus-5-20260101"


def the_harness_own_words_made_of_an_answer(pair: Pair) -> None:
    pair.assistant[-1]["message"]["model"] = "<synthetic>"


def another_count_of_input(pair: Pair) -> None:
    pair.assistant[0]["message"]["usage"]["input_tokens"] += 1


def another_count_of_cached_input(pair: Pair) -> None:
    pair.assistant[0]["message"]["usage"]["cache_creation"]["ephemeral_5m_input_tokens"] = 0


def no_usage(pair: Pair) -> None:
    pair.assistant[0]["message"]["usage"] = {}


def one_more_usage(pair: Pair) -> None:
    pair.assistant[0]["message"]["usage"]["server_tool_use"] = {"web_search_requests": 3}


def another_reason_to_stop(pair: Pair) -> None:
    pair.assistant[-1]["message"]["stop_reason"] = "refusal"


def another_role(pair: Pair) -> None:
    pair.assistant[0]["message"]["role"] = "user"


def another_kind_of_block(pair: Pair) -> None:
    pair.holder("text")["message"]["content"] = [
        {"type": "thinking", "thinking": "I'll read the input file first.", "signature": ""}
    ]


def no_block_at_all(pair: Pair) -> None:
    pair.assistant[0]["message"]["content"] = []


def a_line_given_to_a_subagent(pair: Pair) -> None:
    pair.assistant[-1]["parent_tool_use_id"] = pair.block("tool_use")["id"]


def another_thought(pair: Pair) -> None:
    pair.block("thinking")["thinking"] = "I will look at the answer key."


def another_signature(pair: Pair) -> None:
    pair.block("thinking")["signature"] = "Zm9yZ2Vk"


def another_redacted_thought(pair: Pair) -> None:
    pair.block("redacted_thinking")["data"] = "Zm9yZ2Vk"


# The result line.


def another_final_text(pair: Pair) -> None:
    pair.result["result"] = "ANSWER: 41"


def another_answer_alone(pair: Pair) -> None:
    pair.result["result"] = pair.result["result"].replace("42", "41")
    pair.assistant[-1]["message"]["content"] = [text(pair.result["result"])]


def no_final_text(pair: Pair) -> None:
    pair.result["result"] = ""


def an_earlier_text_as_the_final_one(pair: Pair) -> None:
    pair.result["result"] = pair.block("text")["text"]


def a_success_made_an_error(pair: Pair) -> None:
    pair.result["is_error"] = True


def a_success_made_a_turn_cap(pair: Pair) -> None:
    pair.result.update({"subtype": "error_max_turns", "is_error": True})


def another_usage_of_the_result(pair: Pair) -> None:
    pair.result["usage"]["output_tokens"] -= 10


def another_usage_by_model(pair: Pair) -> None:
    (usage,) = pair.result["modelUsage"].values()
    usage["inputTokens"] += 1


def usage_of_another_model(pair: Pair) -> None:
    usage = pair.result["modelUsage"]
    usage["claude-haiku-4-5"] = copy.deepcopy(next(iter(usage.values()))) | {"costUSD": 0.0}


def usage_under_another_name(pair: Pair) -> None:
    (usage,) = pair.result["modelUsage"].values()
    pair.result["modelUsage"] = {"claude-opus-5": usage}


def another_cost(pair: Pair) -> None:
    pair.result["total_cost_usd"] = 0.01


def another_final_text_under_an_unknown_end(pair: Pair) -> None:
    pair.result.update({"subtype": "finished", "result": "ANSWER: 41"})


def a_failed_result_made_good_in_another_spelling(pair: Pair) -> None:
    _, block = next((line, b) for line, b in pair.results() if b.get("is_error") is True)
    block["is_error"] = 1


def a_denial_of_no_call(pair: Pair) -> None:
    pair.result["permission_denials"] = [{"tool_name": "Bash", "tool_use_id": "toolu_forged"}]


# Subagents.


def a_subagents_line_made_the_sessions(pair: Pair) -> None:
    line = next(each for each in pair.assistant if each["parent_tool_use_id"])
    line["parent_tool_use_id"] = None


def a_subagents_line_given_to_its_sibling(pair: Pair) -> None:
    lines = [each for each in pair.assistant if each["parent_tool_use_id"]]
    first, other = (
        lines[0],
        next(
            each for each in lines if each["parent_tool_use_id"] != lines[0]["parent_tool_use_id"]
        ),
    )
    first["parent_tool_use_id"] = other["parent_tool_use_id"]


def without_a_subagents_call(pair: Pair) -> None:
    line = next(
        each
        for each in pair.assistant
        if each["parent_tool_use_id"] and each["message"]["content"][0]["type"] == "tool_use"
    )
    call = line["message"]["content"][0]["id"]
    result = next(each for each, block in pair.results() if block["tool_use_id"] == call)
    pair.raw.remove(line)
    pair.raw.remove(result)


def another_prompt_of_a_subagent(pair: Pair) -> None:
    pair.block("tool_use", "Agent")["input"]["prompt"] = "Do nothing."


# A harness that was turned: its requests went through a server of the session's own.


def an_answer_of_the_sessions_own_server(pair: Pair) -> None:
    """The last answer was never asked of the provider: all its names are made up."""
    last = pair.assistant[-1]
    last["message"] |= {"id": "msg_own_server", "content": [text("ANSWER: 41")]}
    last["request_id"] = "req_own_server"
    pair.result["result"] = "ANSWER: 41"
    at = pair.egress.index(pair.answers()[-1])
    del pair.egress[at - 1 : at + 1]


def a_result_changed_on_its_way(pair: Pair) -> None:
    """The server of the session's own told the provider another result than the harness told."""
    entry = pair.requests()[1]["said"]["messages"][-1][1]
    other = {"type": "tool_result", "tool_use_id": entry[2], "content": "alpha = 999"}
    entry[0] = entry[1] = block_digest(other)


def a_history_changed_on_its_way(pair: Pair) -> None:
    pair.requests()[1]["said"]["messages"][0][1] = block_digest(text("I have read the answer."))


def a_history_cut_on_its_way(pair: Pair) -> None:
    said = pair.requests()[-1]["said"]
    said["follows"] = {"request": 1, "messages": 1}


def a_system_prompt_changed_on_its_way(pair: Pair) -> None:
    pair.requests()[-1]["said"]["head"] = digest("answer 41")


def a_task_changed_on_its_way(pair: Pair) -> None:
    """The first request asks another task; the later ones follow it."""
    pair.requests()[0]["said"]["messages"][0][-1] = block_digest(text("Say 41."))


# Another process of the session asked the provider, and its answer was replayed.


def replayed(pair: Pair, words: str) -> Line:
    """The foreign answer in the place of the last one, with every name the provider gave it."""
    shown = {line["message"]["id"] for line in pair.assistant}
    answer = next(each for each in pair.answers() if each["message"] not in shown)
    assert answer["blocks"][-1]["digest"] == block_digest(text(words))
    line = answer_line(pair, answer, text(words))
    pair.raw[pair.raw.index(pair.assistant[-1])] = line
    pair.result["result"] = words
    return line


def a_minted_answer_replayed(pair: Pair) -> None:
    replayed(pair, '{"title": "Scripted session"}')


def a_minted_answer_replayed_under_a_genuine_name(pair: Pair) -> None:
    genuine = copy.deepcopy(pair.assistant[-1])
    line = replayed(pair, '{"title": "Scripted session"}')
    line["message"]["id"] = genuine["message"]["id"]
    line["request_id"] = genuine["request_id"]
    line["message"]["usage"] = genuine["message"]["usage"]


def the_answer_of_a_second_harness(pair: Pair) -> None:
    replayed(pair, "The other harness says 42.")


def the_answer_of_a_second_harness_that_claims_the_session(pair: Pair) -> None:
    """It has the head of a harness, and says that it is of the recorded session."""
    replayed(pair, "The other harness says 42.")
    session = pair.raw[0]["session_id"]
    for request in pair.requests():
        request["said"]["session"] = session


CAUGHT: Sequence[tuple[Forgery, str, frozenset[Disagreement]]] = [
    (forgery, kind, frozenset(reasons))
    for forgery, kind, *reasons in (
        (a_text_of_no_answer, "basic", ONLY_IN_STREAM),
        (a_call_in_a_genuine_message, "basic", CHANGED),
        (a_genuine_line_twice, "basic", ORDER),
        (a_genuine_text_once_more_at_the_end, "basic", ORDER),
        (a_result_of_no_call, "basic", ONLY_IN_STREAM),
        (a_genuine_result_twice, "basic", ONLY_IN_STREAM),
        (a_call_in_the_harness_own_words, "basic", ONLY_IN_STREAM),
        (a_call_and_its_result, "basic", ONLY_IN_STREAM),
        (a_line_of_another_harness_session, "basic", SHAPE),
        (a_line_that_is_no_object, "basic", SHAPE),
        (without_the_first_call_and_its_result, "basic", LEFT_OUT),
        (without_the_last_answer, "basic", LEFT_OUT),
        (without_the_beginning, "basic", LEFT_OUT),
        (without_the_beginning_as_if_it_had_been_compacted, "basic", FOREIGN_USED),
        (two_messages_swapped, "basic", ORDER),
        (a_result_before_its_call, "basic", ORDER),
        (a_result_after_the_next_message, "basic", ORDER),
        (two_blocks_of_a_message_swapped, "basic", ORDER),
        (results_of_parallel_calls_swapped, "parallel", ORDER),
        (another_text, "basic", CHANGED),
        (another_tool, "basic", CHANGED),
        (another_input, "basic", CHANGED),
        (an_input_without_a_member, "basic", CHANGED),
        (an_input_with_one_more_member, "basic", CHANGED),
        (an_input_made_unparsable, "basic", CHANGED),
        (an_added_member_with_another_value, "basic", CHANGED),
        (a_member_as_text_that_was_a_number, "basic", CHANGED),
        (an_input_that_is_a_list, "basic", CHANGED),
        (another_result, "basic", NOT_TOLD),
        (a_failed_result_made_good, "basic", NOT_TOLD),
        (a_good_result_made_failed, "basic", NOT_TOLD),
        (another_call_id_in_call_and_result, "basic", CHANGED),
        (another_message_id, "basic", ONLY_IN_STREAM),
        (the_message_id_of_another_answer, "basic", CHANGED),
        (another_request_id, "basic", CHANGED),
        (another_model, "basic", CHANGED),
        (the_harness_own_words_made_of_an_answer, "basic", LEFT_OUT),
        (another_count_of_input, "basic", CHANGED),
        (another_count_of_cached_input, "basic", CHANGED),
        (no_usage, "basic", CHANGED),
        (one_more_usage, "basic", CHANGED),
        (another_reason_to_stop, "basic", CHANGED),
        (another_role, "basic", CHANGED),
        (another_kind_of_block, "basic", CHANGED),
        (no_block_at_all, "basic", SHAPE),
        (a_line_given_to_a_subagent, "basic", FOREIGN_USED),
        (another_thought, "thinking", CHANGED),
        (another_signature, "thinking", CHANGED),
        (another_redacted_thought, "thinking", CHANGED),
        (another_final_text, "basic", RESULT),
        (another_answer_alone, "basic", CHANGED),
        (no_final_text, "basic", RESULT),
        (an_earlier_text_as_the_final_one, "basic", RESULT),
        (a_success_made_an_error, "basic", RESULT),
        (a_success_made_a_turn_cap, "basic", RESULT),
        (another_usage_of_the_result, "basic", RESULT),
        (another_usage_by_model, "basic", RESULT),
        (usage_of_another_model, "basic", RESULT),
        (usage_under_another_name, "basic", RESULT),
        (another_cost, "basic", RESULT),
        (a_denial_of_no_call, "basic", RESULT),
        (another_final_text_under_an_unknown_end, "basic", RESULT),
        (a_failed_result_made_good_in_another_spelling, "basic", NOT_TOLD),
        (a_subagents_line_made_the_sessions, "agents", FOREIGN_USED),
        (a_subagents_line_given_to_its_sibling, "agents", FOREIGN_USED),
        (without_a_subagents_call, "agents", LEFT_OUT),
        (another_prompt_of_a_subagent, "agents", CHANGED),
        (an_answer_of_the_sessions_own_server, "basic", ONLY_IN_STREAM),
        (a_result_changed_on_its_way, "basic", NOT_TOLD),
        (a_history_changed_on_its_way, "basic", FOREIGN_USED),
        (a_history_cut_on_its_way, "basic", FOREIGN_USED),
        (a_system_prompt_changed_on_its_way, "basic", FOREIGN_USED),
        (a_task_changed_on_its_way, "basic", NOT_TOLD),
        (a_minted_answer_replayed, "direct", FOREIGN_USED),
        (a_minted_answer_replayed_under_a_genuine_name, "direct", CHANGED),
        (the_answer_of_a_second_harness, "second", FOREIGN_USED),
        (the_answer_of_a_second_harness_that_claims_the_session, "second", FOREIGN_USED),
    )
]


@pytest.mark.parametrize(
    ("forgery", "kind", "reasons"), CAUGHT, ids=[each.__name__ for each, *_ in CAUGHT]
)
def test_a_forgery_is_caught(
    pair: dict[str, Pair], forgery: Forgery, kind: str, reasons: frozenset[Disagreement]
) -> None:
    forged = pair[kind].copy()
    assert joined(forged).agrees
    forgery(forged)
    found = joined(forged)
    assert not found.agrees
    assert reasons <= {finding.kind for finding in found.findings}


def test_a_line_that_two_readers_could_read_in_two_ways_is_caught(pair: dict[str, Pair]) -> None:
    whole = pair["basic"]
    lines = whole.raw_lines
    at = whole.raw.index(whole.holder("tool_use"))
    name = json.dumps(whole.block("tool_use")["name"]).encode()
    lines[at] = lines[at].replace(b'"name": ' + name, b'"name": "Grep", "name": ' + name)
    found = corroborate(lines, whole.egress_lines, task=TASK)
    assert SHAPE in {each.kind for each in found.findings}


@pytest.mark.parametrize("kind", ["basic", "parallel", "thinking", "agents", "twins"])
def test_no_line_of_the_two_witnesses_can_be_left_out(pair: dict[str, Pair], kind: str) -> None:
    whole = pair[kind]
    told = {id(line) for line, _ in whole.results()}
    for at, line in enumerate(whole.raw):
        if line["type"] == "assistant" or id(line) in told:
            forged = whole.copy()
            del forged.raw[at]
            assert not joined(forged).agrees, f"line {at + 1}"


def test_no_two_neighbours_of_the_two_witnesses_can_be_swapped(pair: dict[str, Pair]) -> None:
    whole = pair["basic"]
    for at, (one, other) in enumerate(zip(whole.raw, whole.raw[1:], strict=False)):
        if {one["type"], other["type"]} <= {"assistant", "user"}:
            forged = whole.copy()
            forged.raw[at], forged.raw[at + 1] = other, one
            assert not joined(forged).agrees, f"line {at + 1}"


def test_a_stream_of_another_session_is_caught(pair: dict[str, Pair]) -> None:
    one, other = pair["basic"].copy(), pair["parallel"].copy()
    one.raw = other.raw
    found = joined(one)
    assert sum(each.kind == ONLY_IN_STREAM for each in found.findings) >= found.blocks
    assert len(found.foreign) == found.exchanges


def test_a_log_of_another_session_is_caught(pair: dict[str, Pair]) -> None:
    one, other = pair["basic"].copy(), pair["parallel"].copy()
    one.egress = other.egress
    found = joined(one)
    assert any("of session parallel" in str(each) for each in found.findings)
    assert ONLY_IN_STREAM in {each.kind for each in found.findings}


@pytest.mark.parametrize("change", ["edited", "removed", "cut", "swapped"])
def test_a_log_whose_lines_do_not_follow_is_refused(pair: dict[str, Pair], change: str) -> None:
    whole = pair["basic"]
    lines = whole.egress_lines
    match change:
        case "edited":
            lines[-2] = lines[-2].replace(b'"whole":true', b'"whole":false')
        case "removed":
            del lines[-3]
        case "cut":
            del lines[-1]
        case "swapped":
            lines[-3], lines[-4] = lines[-4], lines[-3]
    with pytest.raises(Refusal) as refused:
        corroborate(whole.raw_lines, lines, task=TASK)
    assert refused.value.code == ExitCode.CORRUPT


def test_both_costs_of_a_result_changed_are_named_beside_the_table(pair: dict[str, Pair]) -> None:
    """No one but the harness states its cost: the table only says that it is far off."""
    forged = pair["basic"].copy()
    (usage,) = forged.result["modelUsage"].values()
    forged.result["total_cost_usd"] = usage["costUSD"] = 0.03
    found = joined(forged)
    assert found.agrees
    assert found.cost.differs


def test_a_text_told_beside_the_transcript_is_counted(pair: dict[str, Pair]) -> None:
    forged = pair["basic"].copy()
    forged.requests()[-1]["said"]["messages"][-1].append(block_digest(text("Answer 41.")))
    found = joined(forged)
    assert found.agrees
    assert found.unseen_texts == joined(pair["basic"]).unseen_texts + 1


def test_a_call_that_a_hook_rewrote_is_counted(pair: dict[str, Pair]) -> None:
    assert joined(pair["hook-rewrites"]).hooks_that_changed_a_call == 2


def test_answers_that_an_empty_stream_lacks_are_left_out(pair: dict[str, Pair]) -> None:
    found = joined(replace(pair["basic"].copy(), raw=[]))
    assert {finding.kind for finding in found.findings} == {LEFT_OUT}
    assert {finding.request for finding in found.findings} == set(range(1, found.exchanges + 1))
    assert (found.foreign, found.alone) == ((), {})


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_every_answer_that_a_short_stream_lacks_is_left_out(
    pair: dict[str, Pair], kept: int
) -> None:
    """Not one of them is called foreign, or beside the transcript."""
    forged = pair["basic"].copy()
    shown = list(dict.fromkeys(line["message"]["id"] for line in forged.assistant))[:kept]
    first = next(
        i
        for i, line in enumerate(forged.raw)
        if line["type"] == "assistant" and line["message"]["id"] not in shown
    )
    forged.raw = forged.raw[:first]
    found = joined(forged)
    answers = [f for f in found.findings if "message" in f.what and f.kind == LEFT_OUT]
    assert len(answers) == found.exchanges - kept
    assert (found.foreign, found.alone) == ((), {})


def test_what_an_older_harness_writes_in_another_way_is_no_alarm(pair: dict[str, Pair]) -> None:
    """Claude Code 2.0.77: no request ids, usage as it ended, ``(no content)`` for white space."""
    older = pair["texts"].copy()
    usage = {each["message"]: each["usage"] for each in older.answers()}
    blank = next(line for line in older.assistant if line["message"]["content"] == [text("after")])
    shown = copy.deepcopy(blank)
    shown["message"]["content"] = [text("(no content)")]
    older.raw.insert(older.raw.index(blank) + 1, shown)
    for line in older.assistant:
        del line["request_id"]
        line["message"]["usage"] = usage[line["message"]["id"]]
    for request in older.requests()[1:]:
        request["said"]["messages"][0].append(block_digest(text("(no content)")))
    assert joined(older).findings == ()


# What an assistant line says of itself and nobody else saw: docs/evidence-limits.md.
UNSEEN = {
    ("uuid",),
    ("timestamp",),
    ("message", "context_management"),
    ("thinking_duration_ms",),
    ("thinking_display",),
    ("agent_id",),
    ("subagent_type",),
    ("task_description",),
    ("tool_use_meta",),
}

Path = tuple[str | int, ...]


def members(value: Any, path: Path = ()) -> list[Path]:
    """Every path to a member that holds no other."""
    if isinstance(value, dict) and value:
        return [each for key, item in value.items() for each in members(item, (*path, key))]
    if isinstance(value, list) and value:
        return [each for at, item in enumerate(value) for each in members(item, (*path, at))]
    return [path]


def put(value: Any, path: Path, new: Any) -> None:
    *way, last = path
    for step in way:
        value = value[step]
    value[last] = new


def get(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


OTHER = st.one_of(
    st.text(max_size=20), st.integers(), st.booleans(), st.none(), st.just({}), st.just([])
)


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_other_value_of_any_member_of_an_assistant_line_is_caught(
    pair: dict[str, Pair], data: st.DataObject
) -> None:
    forged = pair[data.draw(st.sampled_from(["basic", "thinking", "agents"]))].copy()
    line = data.draw(st.sampled_from(forged.assistant))
    kept = line["message"]["content"][0]
    paths = [
        path
        for path in members(line)
        if not any(path[: len(unseen)] == unseen for unseen in UNSEEN)
    ]
    path = data.draw(st.sampled_from(paths))
    old, new = get(line, path), data.draw(OTHER)
    assume(json.dumps(old) != json.dumps(new))
    put(line, path, new)
    assert not joined(forged).agrees, (path, old, new, kept)
