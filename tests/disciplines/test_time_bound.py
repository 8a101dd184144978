"""A pattern that a text holds up for ever is bounded, and what it reads is not judged."""

from __future__ import annotations

from typing import Any

import pytest

from recorder.disciplines import judging, patterns
from recorder.disciplines.declaration import Declaration
from recorder.disciplines.judging import Memo, Unjudgeable, World, admits, judge
from recorder.disciplines.loading import load_disciplines
from recorder.disciplines.patterns import PatternTimeError, compile_pattern
from recorder.disciplines.verdicts import RECORDED_CALL, verdict_of, verdicts_of
from tests.disciplines.conftest import load_one
from tests.disciplines.made import entry, rules

# Each is read in more than a lifetime by an engine that only backtracks.
HOSTILE = [
    ("(a+)+$", "a" * 5000 + "!"),
    ("(a|aa)+$", "a" * 200 + "!"),
    ("(?=(x+)+y)x", "x" * 5000),
    ("\\s*\\s*\\s*\\s*\\s*$", " " * 20_000 + "x"),
]


@pytest.fixture(autouse=True)
def little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "SECONDS", 0.02)


def reading(pattern: str, source: str = "post", **more: Any) -> Declaration:
    steps = [{"op": "source", "of": source}, {"op": "matches", "re": pattern}]
    declaration = load_one(entry("a", {"it": steps}, scope=None, **more)["declare"])
    assert declaration.scope is None
    return declaration


@pytest.mark.parametrize(("source", "text"), HOSTILE)
def test_a_text_that_a_pattern_backtracks_over_has_an_end(source: str, text: str) -> None:
    pattern = compile_pattern(source)
    assert len(text) > pattern.free
    with pytest.raises(PatternTimeError, match="to be held against"):
        pattern.matches(text)


@pytest.mark.parametrize(
    ("source", "free"),
    [
        # Something that has a choice, and is repeated, is never free.
        ("(a+)+$", -1),
        ("(?:a|b)*", -1),
        ("(?:a|b){2}", -1),
        ("(?:a?){9}", -1),
        ("(?=(a*)*b)", -1),
        ("a", 999_999),
        ("(?:a|b)", 499_999),
        ("(?:ab)+", 999),
        ("a+b+", 98),
        ("(a)\\1", 999),
        ("a{1,4}", 249_999),
        ("(?:x|y)?z", 333_332),
    ],
)
def test_how_long_a_text_needs_no_bound(source: str, free: int) -> None:
    assert compile_pattern(source).free in (free, free - 1)


@pytest.mark.parametrize("op", ["matches", "keyByPattern"])
def test_what_ran_out_of_its_time_is_not_judged_and_never_passed(op: str) -> None:
    text = "a" * 5000 + "!"
    steps = [{"op": "source", "of": "post"}, {"op": op, "re": "(a+)+$"}]
    disciplines = load_disciplines(rules(entry("slow", {"it": steps})), "r")
    (slow,) = disciplines.entries
    verdict = verdict_of(slow, [World(subject="f", path="f", post=text)], RECORDED_CALL)
    assert verdict is not None
    assert verdict.event == "blocked"
    assert verdict.breaks == ()
    assert verdict.message == (
        "discipline 'slow' cannot be judged on f: post takes longer than 0.02 s to be held "
        "against /(a+)+$/"
    )


def test_a_turn_of_a_user_and_a_side_of_a_change_are_bounded_too() -> None:
    text = "a" * 5000 + "!"
    said = {"userMessages": [{"index": 0, "text": text}], "toolCalls": []}
    steps = [{"op": "source", "of": "s"}, {"op": "userTexts", "re": "(a+)+$"}]
    block = entry("a", {"it": steps}, "nonEmpty", None, sources={"s": {"transcript": True}})
    judgment = judge(load_one(block["declare"]), World(transcript=said, path="f"))
    assert isinstance(judgment, Unjudgeable)
    assert judgment.source == "s"
    both = {"it": [{"op": "source", "of": "state"}, {"op": "matches", "re": "(a+)+$"}]}
    change = load_one(entry("a", both, "unchanged", None)["declare"])
    judgment = judge(change, World(path="f", pre="x", post=text))
    assert isinstance(judgment, Unjudgeable)
    assert judgment.source == "state"


def test_a_scope_that_ran_out_of_its_time_admits_and_is_not_judged() -> None:
    rule = entry("a", {"it": [{"op": "source", "of": "command"}]}, scope="command")
    rule["declare"]["scope"]["exclude"] = ["(a+)+$"]
    declaration = load_one(rule["declare"])
    world = World(command="a" * 5000 + "!")
    assert admits(declaration, world)
    judgment = judge(declaration, world)
    assert isinstance(judgment, Unjudgeable)
    assert judgment.source == "command"
    (found,) = verdicts_of(load_disciplines(rules(rule), "r").entries, [world], RECORDED_CALL)
    assert found.event == "blocked"


def test_a_witness_that_ran_out_of_its_time_opens_nothing() -> None:
    rule = entry("a", {"it": [{"op": "source", "of": "post"}]})
    no = rule["declare"]["witness"]["extract"]["no"]
    no[0]["of"], no[1]["re"] = "post", "(a+)+$"
    rule["declare"]["witness"]["relate"][0]["relation"] = {"op": "empty", "of": "no"}
    world = World(path="f", post="a" * 5000 + "!")
    judgment = judge(load_one(rule["declare"]), world)
    assert isinstance(judgment, judging.Broken)
    assert judgment.opened is False


def test_a_session_pays_for_a_pattern_once_and_for_so_many_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = []
    search = patterns.Pattern._search

    def counted(self: patterns.Pattern, text: str) -> Any:
        if len(text) > self.free:
            tried.append(self.source)
        return search(self, text)

    monkeypatch.setattr(patterns.Pattern, "_search", counted)
    declarations = [reading(f"(a+)+{number}$") for number in range(judging.OUTLASTED + 5)]
    memo = Memo()
    for call in range(3):
        world = World(path="f", post="a" * 5000 + f"!{call}")
        for declaration in declarations:
            assert isinstance(judge(declaration, world, memo), Unjudgeable)
    assert tried == [f"(a+)+{number}$" for number in range(judging.OUTLASTED)]
    # Another session has its own time.
    judge(declarations[0], World(path="f", post="a" * 5000 + "!"), Memo())
    assert len(tried) == judging.OUTLASTED + 1
