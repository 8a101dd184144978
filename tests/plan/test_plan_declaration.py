"""``.headwater/probe.yml``: read whole, in every YAML form, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.plan.declaration import (
    IDENTIFIERS,
    Declaration,
    Power,
    load_declaration,
    parse_declaration,
    plain_path,
)
from recorder.plan.nodes import NodeError
from recorder.refusal import ExitCode, Refusal

REGRESSION = """
tiers:
  regression:
    budget_cents: 2000
    session_cost_cents: 25
    repetitions: 1
    arms: [present]
"""

CAMPAIGN = """
tiers:
  campaign:
    budget_cents: 30000
    session_cost_cents: 50
    repetitions: 30
    max_turns: 80
    arms: [present, absent, no-hook, no-skills, no-claude-md, mcp]
    ablation:
        - CLAUDE.md
        - ".claude"
        - .githooks  # the hooks of git
    components:
      no-hook: [.claude/hooks/intent.sh]
      no-skills: [.claude/skills/]
      no-claude-md: [CLAUDE.md]
      mcp: [.mcp.json]
"""


def read(text: str) -> Declaration:
    return parse_declaration(text + REGRESSION)


def test_a_declaration_of_tiers_alone_has_defaults_for_the_rest() -> None:
    declaration = parse_declaration(REGRESSION)
    assert declaration.shelves == ("docs",)
    assert declaration.identifiers == IDENTIFIERS
    assert declaration.instrument == declaration.folds == declaration.leaks_kept == ()
    assert declaration.power is None
    tier = declaration.tiers["regression"]
    assert (tier.budget_cents, tier.session_cost_cents, tier.repetitions) == (2000, 25, 1)
    assert tier.max_turns is None


def test_every_arm_has_its_delta_in_declared_order() -> None:
    tier = parse_declaration(CAMPAIGN).tiers["campaign"]
    assert tier.delta("present") == ()
    assert tier.delta("absent") == ("CLAUDE.md", ".claude", ".githooks")
    assert tier.delta("no-skills") == (".claude/skills",)
    assert tier.delta("mcp") == (".mcp.json",)
    assert tier.max_turns == 80


def test_every_other_member_is_read() -> None:
    declaration = read(
        """
answer_keys: {PROBE-EX-a: [docs/0198-x.md]}
leaks: {PROBE-EX-a: [HW-DR-0052, "status: current"]}
leaks_kept: [PROBE-EX-a]
shelves: [corpus/probes, docs/**]
power: {present: 0.15, absent: 0.08, alpha: 0.05, power: 0.80, pooled: [discovery]}
identifiers: "[A-Z]+-[0-9]+"
check: [tool, check, --json, "{workspace}"]
check_over: corpus
disciplines: tools/disciplines.yaml
"""
    )
    assert declaration.answer_keys == {"PROBE-EX-a": ("docs/0198-x.md",)}
    assert declaration.leaks == {"PROBE-EX-a": ("HW-DR-0052", "status: current")}
    assert declaration.leaks_kept == ("PROBE-EX-a",)
    assert declaration.shelves == ("corpus/probes", "docs")
    assert declaration.power == Power(0.15, 0.08, 0.05, 0.80, ("discovery",))
    assert declaration.identifiers == "[A-Z]+-[0-9]+"
    assert declaration.check == ("tool", "check", "--json", "{workspace}")
    assert declaration.check_over == "corpus"
    assert declaration.disciplines == "tools/disciplines.yaml"


@pytest.mark.parametrize(
    "form",
    [
        pytest.param("instrument: [docs/probes, docs/runs]  # both", id="F06-flow-and-comment"),
        pytest.param("instrument:\n  - docs/probes\n  - docs/runs\n", id="D30-two-spaces"),
        pytest.param("instrument:\n    - docs/probes\n    - docs/runs\n", id="F07-four-spaces"),
        pytest.param("instrument:\n- docs/probes\n- docs/runs\n", id="no-indent"),
        pytest.param("instrument: [\n  'docs/probes',\n  \"docs/runs/\"]", id="F14-quoted"),
        pytest.param("instrument: &a [docs/probes, docs/runs]\nfolds: *a", id="an-alias"),
    ],
)
def test_a_sequence_reads_the_same_in_every_form(form: str) -> None:
    assert read(form).instrument == ("docs/probes", "docs/runs")


@pytest.mark.parametrize("member", ["instrument", "folds"])
@pytest.mark.parametrize(
    "entry", ["../outside", "/etc", "a/../../b", ".", "..", "a//b", "./a", '""', "a/.."]
)
def test_an_entry_that_leaves_the_tree_refuses_the_whole_file_d31_d35_f08(
    member: str, entry: str
) -> None:
    with pytest.raises(NodeError, match="leaves the tree"):
        read(f"{member}: [docs/probes, {entry}]")
    with pytest.raises(NodeError, match="leaves the tree"):
        read(f"answer_keys:\n  PROBE-EX-a:\n    - {entry}")


@given(st.text(max_size=20))
def test_no_path_that_is_read_climbs(written: str) -> None:
    path = plain_path(written)
    if path is not None:
        joined = (Path("/root-of-it") / path).parts
        assert joined[:2] == ("/", "root-of-it")
        assert ".." not in joined
        assert len(joined) > 2


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "declares nothing"),
        ("- a\n", 1, "not a mapping"),
        ("instrument: [a]\n", 1, "no `tiers`"),
        ("a: [\n", 2, "expected"),
        ("a: 1\n---\nb: 2\n", 2, "expected a single document"),
        ("instruments: [a]" + REGRESSION, 1, "no member"),
        ("folds: [a]\nfolds: [b]" + REGRESSION, 2, "twice"),
        ("folds: [a, a]" + REGRESSION, 1, "twice"),
        ("folds: a" + REGRESSION, 1, "not a sequence of paths"),
        ("folds: [[a]]" + REGRESSION, 1, "not a single value"),
        ("folds: [~]" + REGRESSION, 1, "empty"),
        ("folds: [!!python/name:os.system x]" + REGRESSION, 1, "tag"),
        ("shelves: [docs/*]" + REGRESSION, 1, "shelf"),
        ("shelves: [..]" + REGRESSION, 1, "shelf"),
        ('identifiers: "["' + REGRESSION, 1, "no pattern"),
        ('identifiers: "a*"' + REGRESSION, 1, "empty text"),
        ('identifiers: "(a+)+b"' + REGRESSION, 1, "a group is repeated"),
        ("check: [tool]" + REGRESSION, 1, "names no `{workspace}`"),
        ("check_over: tree" + REGRESSION, 1, "is `workspace` or `corpus`"),
        ("disciplines: ../rules.yaml" + REGRESSION, 1, "the path of one file of the corpus"),
        ("disciplines: [a, b]" + REGRESSION, 1, "not a single value"),
        ("power: {present: 0.1, absent: 0.2, alpha: 0.05}" + REGRESSION, 1, "no `power`"),
        ('power: {present: "0.1", absent: 0.2, alpha: 0.05, power: 0.8}' + REGRESSION, 1, "0 and"),
        ("power: {present: true, absent: 0.2, alpha: 0.05, power: 0.8}" + REGRESSION, 1, "0 and"),
        ("power: {present: 0.2, absent: 0.2, alpha: 0.05, power: 0.8}" + REGRESSION, 1, "same"),
        (REGRESSION.replace("regression", "weekly"), 3, "no tier"),
        (REGRESSION.replace("[present]", "[present, no-docs]"), 7, "no arm"),
        (REGRESSION.replace("[present]", "[present, present]"), 7, "twice"),
        (REGRESSION.replace("[present]", "[]"), 4, "no `arms`"),
        (REGRESSION.replace("    repetitions: 1\n", ""), 4, "no `repetitions`"),
        (REGRESSION + "    turns: 3\n", 8, "no member"),
        *(
            (REGRESSION.replace("2000", value), 4, "whole number")
            for value in ("010", "-1", "1.5", "abc", '"20"', "1e3", "0x10", "2_000", "true")
        ),
        (REGRESSION.replace("repetitions: 1", "repetitions: 0"), 6, "below 1"),
        (
            CAMPAIGN.replace("[.claude/skills/]", ".claude/skills"),
            15,
            "the `no-skills` delta of the `campaign` tier is not a sequence of paths",
        ),
        (CAMPAIGN.replace("      no-hook: [.claude/hooks/intent.sh]\n", ""), 4, "no delta"),
        (CAMPAIGN.replace("mcp: [.mcp.json]", "mcp: []"), 17, "empty"),
        (CAMPAIGN.replace("mcp: [.mcp.json]", "absent: [docs]"), 17, "no component arm"),
    ],
)
def test_a_fault_is_named_with_its_line(text: str, line: int, says: str) -> None:
    with pytest.raises(NodeError) as caught:
        parse_declaration(text)
    assert says in caught.value.reason
    assert caught.value.line == line


@pytest.mark.parametrize("code", [ExitCode.USAGE, ExitCode.PLAN, ExitCode.INSTRUMENT])
def test_a_file_that_cannot_be_read_is_refused_with_the_code_of_the_verb(
    tmp_path: Path, code: ExitCode
) -> None:
    with pytest.raises(Refusal, match="cannot be read") as refused:
        load_declaration(tmp_path, code)
    assert refused.value.code == code
    (tmp_path / ".headwater").mkdir()
    (tmp_path / ".headwater" / "probe.yml").write_text("folds: [../x]\n" + REGRESSION)
    with pytest.raises(Refusal, match=r"probe\.yml:1:9: .*leaves the tree") as refused:
        load_declaration(tmp_path, code)
    assert refused.value.code == code
    (tmp_path / ".headwater" / "probe.yml").write_bytes(b"\xff\xfe")
    with pytest.raises(Refusal, match="UTF-8"):
        load_declaration(tmp_path, code)
