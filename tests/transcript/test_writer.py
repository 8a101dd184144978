"""One encoder and one writer: what is written is read back as exactly what it was."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import UNSET, structs

from recorder.refusal import Refusal
from recorder.transcript.checker import check
from recorder.transcript.contract import ARMS, TIERS, Artifact, Call, Event, Identity
from recorder.transcript.reader import read_events
from recorder.transcript.scalar import encode
from recorder.transcript.writer import event_yaml, identity_yaml, transcript_markdown

anything = st.text(st.characters(), max_size=20) | st.text(
    st.sampled_from(
        "\x00\t\n\r\x1b\x7f\x85\xa0\u2028\u2029\ufeff\ufffe\uffff\ud800\udfff\"\\#:- '"
    ),
    max_size=8,
)
names = anything.filter(bool)


def optional(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.just(UNSET) | strategy


calls = st.builds(Call, tool=names, argument=anything, result=anything)
artifacts = st.builds(
    Artifact,
    path=names,
    result=anything,
    cites=st.lists(anything, max_size=3).map(tuple),
    findings=optional(st.lists(anything, max_size=3).map(tuple)),
)
events = st.builds(
    Event,
    probe=names,
    session=names,
    calls=optional(st.lists(calls, max_size=3).map(tuple)),
    produced=optional(st.lists(artifacts, max_size=3).map(tuple)),
    answer=optional(st.none() | anything),
)
identities = st.builds(
    Identity,
    **{
        key: names
        for key in Identity.__struct_fields__
        if key not in ("seed", "cost_cents", "tier", "arm")
    },
    seed=st.integers(-(10**9), 10**9),
    cost_cents=st.integers(0, 10**9),
    tier=st.sampled_from(TIERS),
    arm=st.sampled_from(ARMS),
)


@settings(max_examples=500)
@given(anything)
@example("\ud83d\ude00 half: \ud83d")
@example("\U0001f600\u2028\x85\x7f")
def test_every_string_round_trips_as_yaml_and_as_json(text: str) -> None:
    encoded = encode(text)
    assert len((encoded + "x").splitlines()) == 1
    assert yaml.safe_load(encoded) == text
    # JSON joins two halves that stand side by side, and so does nothing else.
    halves = re.search("[\ud800-\udbff][\udc00-\udfff]", text)
    assert halves or json.loads(encoded) == text
    if not re.search("[\ud800-\udfff]", text):
        assert yaml.load(encoded, Loader=yaml.CSafeLoader) == text
        encoded.encode("utf-8")


def test_control_characters_are_escaped_on_one_line() -> None:
    """L22"""
    assert encode('\t\n\x01\x1b"\\') == '"\\t\\n\\u0001\\u001b\\"\\\\"'
    assert encode("é😀") == '"é😀"'


@given(events)
def test_an_event_is_read_back_as_itself(event: Event) -> None:
    reading = read_events(event_yaml(event))
    assert reading.faults == ()
    assert [located.event for located in reading.events] == [event]


@given(events)
def test_an_event_is_yaml_of_exactly_its_members(event: Event) -> None:
    (read,) = yaml.safe_load(event_yaml(event))
    present = [key for key in Event.__struct_fields__ if getattr(event, key) is not UNSET]
    assert list(read) == present
    if event.calls is not UNSET:
        assert read["calls"] == [structs.asdict(call) for call in event.calls]
    if event.produced is not UNSET:
        assert read["produced"] == [
            {k: list(v) if isinstance(v, tuple) else v for k, v in structs.asdict(a).items()
             if v is not UNSET}
            for a in event.produced
        ]  # fmt: skip


LINE = re.compile(
    r"- probe: |  session: |  calls:( \[\])?$|    - tool: |      argument: |      result: "
    r"|  produced:( \[\])?$|    - path: |      (cites|findings):( \[\])?$|        - \"|  answer: "
)


@given(events)
def test_every_line_starts_with_a_declared_key_at_its_indent(event: Event) -> None:
    """L04, L09"""
    for line in event_yaml(event).split("\n")[:-1]:
        assert LINE.match(line), line


def test_the_form_of_an_event() -> None:
    """L05, L19, L23, L24"""
    event = Event(
        probe="P",
        session="s",
        calls=(Call(tool="Read", argument="a.md", result="sha256:0"),),
        produced=(
            Artifact(path="o", result="", cites=("A-B-0001",)),
            Artifact(path="p", result="", cites=(), findings=()),
        ),
        answer=None,
    )
    assert event_yaml(event) == (
        '- probe: "P"\n  session: "s"\n  calls:\n    - tool: "Read"\n      argument: "a.md"\n'
        '      result: "sha256:0"\n  produced:\n    - path: "o"\n      result: ""\n'
        '      cites:\n        - "A-B-0001"\n    - path: "p"\n      result: ""\n'
        "      cites: []\n      findings: []\n  answer: null\n"
    )
    assert event_yaml(structs.replace(event, calls=(), produced=UNSET, answer=UNSET)) == (
        '- probe: "P"\n  session: "s"\n  calls: []\n'
    )


def test_the_form_of_an_identity() -> None:
    """A19"""
    members = dict.fromkeys(Identity.__struct_fields__, "x") | {"seed": 0, "cost_cents": 41}
    text = identity_yaml(Identity(**members))  # type: ignore[arg-type]
    keys = "model served_version tree lock selection read_set seed harness tier arm at cost_cents"
    assert [line.split(": ")[0] for line in text.splitlines()] == keys.split()
    assert "\nseed: 0\n" in text
    assert text.endswith('at: "x"\ncost_cents: 41\n')


@given(
    identities,
    st.lists(events, max_size=3, unique_by=lambda event: (event.probe, event.session)),
    st.lists(anything | st.sampled_from(["```yaml", "## Events", "~~~", "---"]), max_size=3),
    anything,
)
def test_a_transcript_passes_the_check_whatever_its_prose(
    identity: Identity, written: list[Event], prose: list[str], title: str
) -> None:
    text = transcript_markdown(title, {"id": "X", "title": title}, identity, prose, written)
    checked = check(text, "t.md")
    assert checked.identity == identity
    assert list(checked.events) == written


def test_a_session_named_twice_is_refused() -> None:
    event = Event(probe="P", session="s")
    other = Event(probe="Q", session="s")
    members = dict.fromkeys(Identity.__struct_fields__, "x")
    members |= {"seed": 0, "cost_cents": 41, "tier": "campaign", "arm": "mcp"}  # type: ignore[dict-item]
    identity = Identity(**members)  # type: ignore[arg-type]
    assert check(transcript_markdown("t", {}, identity, [], [event, other]), "t").events
    with pytest.raises(Refusal, match="already the session of P"):
        check(transcript_markdown("t", {}, identity, [], [event, other, event]), "t")
