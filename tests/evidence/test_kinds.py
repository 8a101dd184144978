"""The two witnesses agree on every kind of session, and what only one of them saw is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from recorder.evidence.corroboration import Corroboration, corroborate
from tests.evidence.conftest import Record
from tests.evidence.kinds import KINDS
from tests.evidence.scripted import TASK, Recording

pytestmark = [pytest.mark.engine]

# What the join says of these beside that it agrees: attributes of a Corroboration.
NAMED: Mapping[str, Mapping[str, Any]] = {
    "basic": {"corroborated": 9, "results": 5, "normalised": {"Edit.replace_all": 1}},
    "thinking": {"corroborated": 6, "results": 1},
    "parallel": {"corroborated": 6, "results": 4},
    "resumed": {"corroborated": 8, "thoughts_not_told": 0},
    "texts": {"corroborated": 6},
    "badtool": {"normalised": {"__unparsedToolInput": 1}},
    "subagent": {"corroborated": 7, "not_shown": 0},
    "subagentbg": {"not_shown": 2, "alone": {"a subagent's, not shown": 1}},
    "agents": {"not_shown": 6, "alone": {"a subagent's, not shown": 2}},
    # Whether the two end together or apart decides how often the main conversation is woken, and so
    # how many blocks there are: 15 or 16, all of them corroborated.
    "twins": {"normalised": {}, "not_shown": 0},
    "toolong-once": {"alone": {"refused by the provider": 1, "side call": 2}},
    "errdropmidx2": {"alone": {"cut": 2}},
    "errovermidx2": {"alone": {"cut": 1}},
    "cut-text": {"alone": {"cut": 3}},
    # The sidecar lets the harness ask again where the provider hung up.
    "errdrop0x2": {"alone": {"without an answer": 2}, "own_words": 0},
    "err429x2": {"alone": {"refused by the provider": 2}},
    "empty": {"alone": {"empty": 2}},
    "max-turns": {"unconfirmed": 1},
    "max-tokens": {"own_words": 1, "texts": 3},
    "trailing": {"corroborated": 7, "thoughts_not_told": 1},
    "nested": {"corroborated": 3},
    "message": {
        "normalised": {
            "SendMessage.content": 1,
            "SendMessage.recipient": 1,
            "SendMessage.recipient_kind": 1,
            "SendMessage.type": 1,
        }
    },
    "fork": {"texts": 1},
    "hook-asks": {"alone": {"side call": 1}},
    "direct": {"alone": {"foreign": 1}},
    "second": {"alone": {"foreign": 1}},
    "hook-rewrites": {"hooks_that_changed_a_call": 2},
    "normalised": {
        "tools_changed": 1,
        "normalised": {
            "Bash.command": 1,
            "Bash.timeout": 1,
            "Edit.new_string": 1,
            "Edit.replace_all": 1,
            "Write.content": 1,
            "mcp__calc__add.a": 1,
        },
    },
}
FAST = (
    "basic",
    "thinking",
    "parallel",
    "agents",
    "twins",
    "toolong-once",
    "errovermidx2",
    "cut-text",
    "max-turns",
    "direct",
    "second",
    "hook-rewrites",
    "normalised",
)


def joined(recording: Recording) -> Corroboration:
    return corroborate(recording.raw, recording.egress, task=TASK, session=recording.directory.name)


def agrees(recording: Recording) -> None:
    assert recording.watched.ended == "harness"
    found = joined(recording)
    assert found.findings == ()
    for name, value in NAMED.get(recording.kind.name, {}).items():
        assert getattr(found, name) == value, name


@pytest.mark.parametrize("name", FAST)
def test_the_witnesses_agree(record: Record, name: str) -> None:
    agrees(record(name))


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", sorted(set(KINDS) - set(FAST)))
def test_the_witnesses_agree_on_every_other_kind(record: Record, name: str) -> None:
    agrees(record(name))


def test_a_foreign_request_is_named_by_what_gives_it_away(record: Record) -> None:
    (direct,) = joined(record("direct")).foreign
    assert not direct.used
    assert "head" in direct.why
    (second,) = joined(record("second")).foreign
    assert "another harness session" in second.why
    assert second.session is not None


def test_the_price_table_gives_what_the_harness_states_of_whole_answers(record: Record) -> None:
    cost = joined(record("basic")).cost
    assert cost.harness is not None
    assert cost.table == cost.harness.quantize(cost.table)
    assert not cost.differs


def test_a_cut_answer_makes_the_two_costs_differ_and_that_is_named(record: Record) -> None:
    # How much of an answer had come when it was cut decides by how much: about 1 % here.
    cost = joined(record("cut-text")).cost
    assert cost.difference is not None
    assert abs(cost.difference) > Decimal("0.001")
    assert replace(cost, difference=Decimal("0.0101")).differs
    assert not replace(cost, difference=Decimal("-0.0099")).differs
