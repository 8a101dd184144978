"""A batch file: every fault with its place, the reference's lines, one table of members."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import get_args

import jsonschema
import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from recorder.batch.spec import BatchSpec, Caps, LineSpec, parse_spec, read_spec, spec_schema
from recorder.refusal import ExitCode, Refusal
from recorder.session.credentials import CHOICES

WHOLE = "corpus: c\nmodel: m\nlines: [{tier: campaign, arm: present}]\n"


def spec_of(text: str) -> BatchSpec:
    spec, faults = parse_spec(text)
    assert faults == ()
    assert spec is not None
    return spec


def faults_of(text: str) -> tuple[str, ...]:
    spec, faults = parse_spec(text)
    assert spec is None
    return faults


def test_every_fault_is_told_with_its_line_and_column() -> None:
    text = textwrap.dedent(
        """\
        corpus: c
        model:
        parallel: 0
        paralel: 4
        seed: 1
        seed: 2
        limits: strict
        caps: {batch_dollars: 0, session: 3}
        free_disk: lots
        lines:
          - {tier: campaign, repetitions: 010}
          - campaign present
          - {tier: campaign, arm: present, plan: p, category: x}
          - [tier]
        timeout_seconds: .inf
        """
    )
    places = ["2:1", "3:1", "4:1", "6:1", "7:1", "8:8", "8:26", "9:1", "11:5", "11:22", "12:5"]
    places += ["13:5", "14:5", "15:1"]
    faults = faults_of(text)
    assert [fault.split(": ")[0] for fault in faults] == places
    assert faults[2] == "4:1: 'paralel' is no member of the batch: 'parallel' is meant?"
    assert faults[3] == "6:1: the key 'seed' stands twice"
    assert "'010'" in faults[9]


def test_a_refusal_names_the_file_once_for_each_fault(tmp_path: Path) -> None:
    path = tmp_path / "batch.yaml"
    path.write_text("corpus: 1\nmodel: [m]\nlines: [a b c]\n")
    with pytest.raises(Refusal) as caught:
        read_spec(path)
    assert caught.value.code == ExitCode.USAGE
    assert [reason.split(" ")[0] for reason in caught.value.reasons] == [
        f"{path}:1:1:",
        f"{path}:2:1:",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "1:1: the file is empty"),
        ("&a [*a]", "1:1: is nested too deeply"),
        ("- 1", "1:1: the batch is a sequence"),
        ("a: \x00", "1:1: not YAML"),
        (WHOLE + "max_turns: 0\n", "4:1: max_turns is 0: it is 1 or more"),
        (WHOLE + "pin: main\n", "4:1: pin is 'main': write the corpus' digest"),
        (WHOLE + "harness: latest\n", "4:1: harness is 'latest': write a version"),
        (WHOLE + "caps: {session_dollars: 1}\nsession_dollars: 1\n", "5:1: session_dollars stands"),
        ("corpus: c\nmodel: m\nlines: |\n  # none\n", "3:1: lines is empty"),
        ("corpus: c\nmodel: m\nlines: |\n  a b\n", "3:1: line 1 is 'a b': write `tier arm"),
    ],
)
def test_what_is_no_batch(text: str, fault: str) -> None:
    assert faults_of(text)[0].startswith(fault)


def test_numbers_are_as_they_are_written_and_everything_else_is_text() -> None:
    assert spec_of(WHOLE.replace("model: m", "model: no")).model == "no"
    commit = "1" * 40
    assert spec_of(WHOLE + f"pin: {commit}\n").pin == commit
    for written in ("010", "1_0", "0x10", "1e1", "true", "+1"):
        assert faults_of(WHOLE + f"parallel: {written}\n")


@pytest.mark.parametrize(
    ("written", "size"),
    [("5", 5), ("1 KiB", 1024), ("3MiB", 3 << 20), ("2 GiB", 2 << 30)],
)
def test_a_size_has_a_unit_or_is_bytes(written: str, size: int) -> None:
    assert spec_of(WHOLE + f"free_disk: {written}\n").disk_floor == size
    assert spec_of(WHOLE).disk_floor == 1 << 30


def test_a_line_in_one_string_is_tier_arm_category_and_what_to_leave_out_o01() -> None:
    wanted = (
        LineSpec(tier="campaign", arm="present", category="discovery", as_first=True),
        LineSpec(
            tier="campaign", arm="mcp", category="sufficiency", exclude=("A", "B"), as_first=True
        ),
    )
    head = "corpus: c\nmodel: m\nlines:"
    listed = f"{head}\n  - campaign present discovery\n  - campaign mcp sufficiency A B\n"
    block = (
        f"{head} |\n  # tier arm category\n  campaign present discovery\n\n"
        "  #campaign absent discovery\n  campaign mcp  sufficiency A B\n"
    )
    assert spec_of(listed).lines == wanted
    assert spec_of(block).lines == wanted


def test_an_older_member_bounds_a_session_as_caps_do() -> None:
    assert (
        spec_of(WHOLE + "session_dollars: 0.5\n").bound
        == spec_of(WHOLE + "caps: {session_dollars: 0.5, batch_dollars: 3}\n").bound
    )
    assert spec_of(WHOLE + "caps: {batch_dollars: 300}\n").cap == 300
    assert spec_of(WHOLE).bound is None
    assert spec_of(WHOLE).cap is None


def test_the_schema_and_the_structs_have_the_same_members_and_defaults() -> None:
    schema = spec_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    for struct, stated in (
        (BatchSpec, schema),
        (Caps, schema["properties"]["caps"]),
        (LineSpec, schema["$defs"]["line"]),
    ):
        # How a line was written is no member of one.
        fields = [f for f in msgspec.structs.fields(struct) if f.name != "as_first"]
        assert {f.name for f in fields} == set(stated["properties"])
        assert {f.name for f in fields if f.required} == set(stated.get("required", ()))
        for found in fields:
            default = stated["properties"][found.name].get("default")
            if default is not None:
                assert found.default == default
    types = {f.name: f.type for f in msgspec.structs.fields(BatchSpec)}
    assert schema["properties"]["limits"]["enum"] == list(get_args(types["limits"]))
    assert schema["properties"]["credentials"]["enum"] == list(CHOICES)


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=9)
DOLLARS = st.decimals("0.01", 9999, places=2).map(float)
LINES = st.one_of(
    st.lists(TEXT, min_size=3, max_size=5).map(" ".join),
    st.fixed_dictionaries(
        {"tier": TEXT, "arm": TEXT},
        optional={
            "category": TEXT,
            "exclude": st.lists(TEXT, max_size=3),
            "repetitions": st.integers(1, 999),
        },
    ),
)
DOCUMENTS = st.fixed_dictionaries(
    {"corpus": TEXT, "model": TEXT, "lines": st.lists(LINES, min_size=1, max_size=3)},
    optional={
        "parallel": st.integers(1, 16),
        "seed": st.integers(0, 1 << 40),
        "repetitions": st.integers(1, 99),
        "caps": st.fixed_dictionaries(
            {}, optional={"batch_dollars": DOLLARS, "session_dollars": DOLLARS}
        ),
        "max_turns": st.integers(1, 99),
        "limits": st.sampled_from(["required", "report"]),
        "free_disk": st.one_of(st.integers(1, 1 << 40), st.just("2 GiB")),
        "canary": st.integers(1, 99),
        "policy": TEXT,
    },
)


@given(DOCUMENTS)
def test_whatever_the_schema_takes_is_read_as_it_was_written(document: dict[str, object]) -> None:
    spec = spec_of(json.dumps(document, ensure_ascii=False))
    assert spec.corpus == document["corpus"]
    assert len(spec.lines) == len(document["lines"])  # type: ignore[arg-type]
    assert spec.parallel == document.get("parallel", 1)


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT)
ANY = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)


@given(DOCUMENTS, st.sampled_from(sorted(spec_schema()["properties"])), ANY)
def test_a_member_of_any_shape_is_read_or_told_at_its_place(
    document: dict[str, object], member: str, value: object
) -> None:
    text = yaml.safe_dump({**document, member: value}, sort_keys=False)
    spec, faults = parse_spec(text)
    assert (spec is None) == bool(faults)
    lines = text.splitlines()
    for fault in faults:
        line, column, _ = fault.split(":", 2)
        assert 1 <= int(line) <= len(lines)
        assert int(column) >= 1
