"""Section P of the behaviours: what a batch would run, cost and leak, with its exact numbers."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.batch.dry_run import DryRun, Share, dry_run
from recorder.batch.line import lay_lines
from recorder.batch.spec import BatchSpec, LineSpec
from recorder.cli import app
from recorder.plan.composition import compose_plan
from recorder.plan.declaration import Power
from recorder.plan.power import sample_size
from recorder.plan.rendering import render_plan
from recorder.refusal import ExitCode, Refusal

ARMS = ("present", "absent", "no-hook", "no-skills", "no-claude-md", "mcp")
DECLARATION = """
instrument: [docs/probes, .headwater/probe.yml]
leaks:
  PROBE-S0: [a secret of s0]
leaks_kept: [PROBE-K0, PROBE-K1]
power: {present: 0.15, absent: 0.08, alpha: 0.05, power: 0.8, pooled: [discovery]}
tiers:
  campaign:
    budget_cents: 30000
    session_cost_cents: 50
    repetitions: 177
    max_turns: 80
    arms: [present, absent, no-hook, no-skills, no-claude-md, mcp]
    ablation: [CLAUDE.md, .claude]
    components:
      no-hook: [.claude/hooks/intent.sh]
      no-skills: [.claude/skills]
      no-claude-md: [CLAUDE.md]
      mcp: [.mcp.json]
  documentation:
    budget_cents: 13000
    session_cost_cents: 50
    repetitions: 30
    arms: [present, absent]
    ablation: [docs/extra.md]
"""


def probe(corpus: Path, identifier: str, category: str) -> None:
    path = corpus / "docs" / "probes" / f"{identifier.lower()}-a-probe.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"---\nid: PROBE-{identifier}\nprobe_category: {category}\nexpectation: answered\n---\n"
        "## Task\n\nDo it.\n\n## Expectation\n\n```yaml\nanswers: [yes, no]\n```\n"
    )


def plant(root: Path, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Three discovery probes, nine sufficiency probes and two leak-kept ones."""
    root = tmp_path / "corpus"
    plant(
        root,
        {
            ".headwater/probe.yml": DECLARATION,
            ".headwater/taxonomy.lock": "lock\n",
            ".headwater/arms/mcp/.mcp.json": '{"mcpServers": {"s": {"command": "x"}}}',
            ".claude/hooks/intent.sh": "#!/bin/sh\n",
            ".claude/skills/a/SKILL.md": "---\ndescription: a skill\n---\n",
            "CLAUDE.md": "standing\n",
            "docs/extra.md": "extra\n",
        },
    )
    for number in range(3):
        probe(root, f"D{number}", "discovery")
    for number in range(9):
        probe(root, f"S{number}", "sufficiency")
    for number in range(2):
        probe(root, f"K{number}", "sufficiency")
    return root


S_PROBES = tuple(f"PROBE-S{number}" for number in range(9))
K_PROBES = ("PROBE-K0", "PROBE-K1")


def line(arm: str, **members: object) -> LineSpec:
    return LineSpec(**{"tier": "campaign", "arm": arm, **members})  # type: ignore[arg-type]


def lines_of(arms: Sequence[str] = ARMS) -> tuple[LineSpec, ...]:
    """For each arm: discovery at 118, sufficiency at 30, the leak-kept probes at 30 apart."""
    return tuple(
        found
        for arm in arms
        for found in (
            line(arm, category="discovery", repetitions=118),
            line(arm, category="sufficiency", exclude=K_PROBES, repetitions=30),
            line(arm, category="sufficiency", exclude=S_PROBES, repetitions=30),
        )
    )


def documentation() -> tuple[LineSpec, ...]:
    return tuple(
        LineSpec(tier="documentation", arm=arm, category="discovery")
        for arm in ("present", "absent")
    )


def report(corpus: Path, lines: Sequence[LineSpec], tmp_path: Path, **options: object) -> DryRun:
    spec = BatchSpec(corpus=str(corpus), model="m", lines=tuple(lines))
    work = tmp_path / f"work-{len(list(tmp_path.iterdir()))}"
    return dry_run(spec, corpus, work, **options)  # type: ignore[arg-type]


def test_the_sums_are_those_of_the_second_revision_p04_p05_p06_p07_p08_p09(
    corpus: Path, tmp_path: Path
) -> None:
    found = report(corpus, [*lines_of(), *documentation()], tmp_path, max_sessions=500)
    said = list(found.said())
    assert "arm campaign mcp: 684 sessions, $342.00" in said
    assert (
        "tier campaign: 4104 sessions, $2052.00 against a ceiling of $300.00: over by $1752.00"
        in said
    )
    assert "total: 4284 sessions, $2142.00 against $430.00" in said
    assert "category campaign discovery: 2124 sessions, $1062.00, 49.6% of the total" in said
    assert any(
        row.startswith("category campaign sufficiency (leak-kept): 360 sessions, $180.00")
        for row in said
    )
    assert "slices: 4284 sessions in 9 slices of at most 500" in said
    assert (
        "tier documentation: 180 sessions, $90.00 against a ceiling of $130.00: within it by "
        "$40.00" in said
    )


def test_the_sums_are_those_of_the_first_revision_p03_p04_p05_p06(
    corpus: Path, tmp_path: Path
) -> None:
    """Two discovery probes at 177, and 210 sessions of others in each arm: 564 an arm."""
    lines = [
        part
        for arm in ARMS
        for part in (
            line(arm, category="discovery", exclude=("PROBE-D2",), repetitions=177),
            line(
                arm,
                category="sufficiency",
                exclude=(*K_PROBES, *S_PROBES[5:]),
                repetitions=30,
            ),
            line(arm, category="sufficiency", exclude=S_PROBES, repetitions=30),
        )
    ]
    lines += [
        LineSpec(tier="documentation", arm=arm, category="discovery", exclude=("PROBE-D2",))
        for arm in ("present", "absent")
    ]
    said = list(report(corpus, lines, tmp_path).said())
    assert "arm campaign mcp: 564 sessions, $282.00" in said
    assert (
        "tier campaign: 3384 sessions, $1692.00 against a ceiling of $300.00: over by $1392.00"
        in said
    )
    assert "total: 3504 sessions, $1752.00 against $430.00" in said
    assert any("campaign discovery, 2 probes: 177 repetitions" in row for row in said)
    assert not any(row.startswith("slices") for row in said)


def test_the_power_of_the_declared_rates_p02_p03_p28(corpus: Path, tmp_path: Path) -> None:
    said = list(report(corpus, lines_of(["present"]), tmp_path).said())
    assert any(
        "needs 325 sessions per arm, 353 with the Fleiss continuity correction" in row
        for row in said
    )
    assert any(
        "pooled category campaign discovery, 3 probes: 118 repetitions" in row
        and row.endswith("plans 354 sessions in its smallest arm, enough")
        for row in said
    )
    size = sample_size(Power(present=0.15, absent=0.08, alpha=0.05, power=0.8))
    assert (size.plain, size.corrected) == (325, 353)
    assert [size.each(probes) for probes in (1, 2, 3)] == [353, 177, 118]


RATES = st.floats(0.02, 0.98)


@given(one=RATES, two=RATES, alpha=st.floats(0.001, 0.2), power=st.floats(0.5, 0.99))
def test_a_sample_size_is_symmetric_and_grows_with_what_is_asked(
    one: float, two: float, alpha: float, power: float
) -> None:
    if abs(one - two) < 0.01:
        return
    size = sample_size(Power(present=one, absent=two, alpha=alpha, power=power))
    turned = sample_size(Power(present=two, absent=one, alpha=alpha, power=power))
    assert size == turned
    assert 1 <= size.plain <= size.corrected
    stricter = sample_size(Power(present=one, absent=two, alpha=alpha / 2, power=power))
    assert stricter.plain >= size.plain
    assert all(
        size.each(probes) * probes >= size.corrected > (size.each(probes) - 1) * probes
        for probes in (1, 2, 7)
    )
    assert size.corrected < size.plain + math.ceil(2 / abs(one - two)) + 2


def test_a_plan_above_its_ceiling_is_said_and_not_fatal_p15(corpus: Path, tmp_path: Path) -> None:
    text = DECLARATION.replace("repetitions: 177", "repetitions: 360")
    (corpus / ".headwater" / "probe.yml").write_text(text)
    lines = [line("present", category="discovery", repetitions=360)]
    found = report(corpus, lines, tmp_path)
    assert "L1 1080 sessions project $540.00 against a declared ceiling of $300.00" in found.said()
    found.require_no_leak()
    assert found.lines[0].over


def test_lines_of_leak_kept_probes_are_said_p08_p13(corpus: Path, tmp_path: Path) -> None:
    said = list(report(corpus, lines_of(["present"]), tmp_path).said())
    assert "L3 holds leak-kept probes alone, on a line of its own" in said
    assert not any("L2 holds" in row for row in said)
    mixed = list(
        report(corpus, [line("present", category="sufficiency", repetitions=1)], tmp_path).said()
    )
    assert any("L1 holds leak-kept probes beside others: PROBE-K0, PROBE-K1" in r for r in mixed)
    assert "category campaign sufficiency: 9 sessions, $4.50, 81.8% of the total" in mixed
    assert "category campaign sufficiency (leak-kept): 2 sessions, $1.00, 18.2% of the total" in (
        mixed
    )


def test_each_arms_difference_is_printed_p11(corpus: Path, tmp_path: Path) -> None:
    lines = [line(arm, category="discovery", repetitions=1) for arm in ARMS]
    asked: list[str] = []

    def lister(tree: Path) -> Mapping[str, Sequence[str]]:
        asked.append(tree.name)
        return {"mcp__s__find": ["Finds."], "mcp__s__show": ["Shows."]}

    said = list(report(corpus, lines, tmp_path, lister=lister).said())
    for row in (
        "tree L1 campaign present: the present tree",
        "tree L2 campaign absent: - .claude",
        "tree L2 campaign absent: - CLAUDE.md",
        "tree L3 campaign no-hook: - .claude/hooks/intent.sh",
        "tree L4 campaign no-skills: - .claude/skills",
        "tree L5 campaign no-claude-md: - CLAUDE.md",
        "tree L6 campaign mcp: + .mcp.json",
        "tree L6 campaign mcp: its servers list find, show",
    ):
        assert row in said
    assert asked == ["6"]


def test_without_an_engine_the_tools_are_said_not_to_be_listed_p01(
    corpus: Path, tmp_path: Path
) -> None:
    found = report(corpus, [line("mcp", category="discovery", repetitions=1)], tmp_path)
    assert "tree L1 campaign mcp: declares MCP servers, whose tools were not listed" in found.said()


def test_a_server_that_lists_no_tool_is_eight_p20(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="list no tool") as refused:
        report(
            corpus,
            [line("mcp", category="discovery", repetitions=1)],
            tmp_path,
            lister=lambda _: {},
        )
    assert refused.value.code == ExitCode.INSTRUMENT


def test_leaks_of_each_tree_are_printed_with_its_name_and_kept_ones_do_not_fail_p12_p18(
    corpus: Path, tmp_path: Path
) -> None:
    (corpus / "CLAUDE.md").write_text("a secret of s0\n")
    lines = [
        line(arm, category="sufficiency", exclude=K_PROBES, repetitions=1)
        for arm in ("present", "no-claude-md")
    ]
    found = report(corpus, lines, tmp_path)
    said = list(found.said())
    leak = "leak PROBE-S0 CLAUDE.md a secret of s0"
    assert [row for row in said if leak in row] == [f"tree L1 campaign present: {leak}"]
    with pytest.raises(Refusal, match="a secret of s0") as refused:
        found.require_no_leak()
    assert refused.value.code == ExitCode.NAMED
    kept = DECLARATION.replace("leaks_kept: [", "leaks_kept: [PROBE-S0, ")
    (corpus / ".headwater" / "probe.yml").write_text(kept)
    found = report(corpus, lines, tmp_path)
    assert any("kept PROBE-S0 CLAUDE.md" in row for row in found.said())
    found.require_no_leak()


def test_a_tree_is_laid_once_for_lines_that_share_it(corpus: Path, tmp_path: Path) -> None:
    lines = [line("present", category="discovery", repetitions=n) for n in (1, 2)]
    (tree,) = report(corpus, lines, tmp_path).trees
    assert tree.name == "tree L1 L2 campaign present"


@pytest.mark.parametrize(
    ("edit", "code", "says"),
    [
        pytest.param(("expectation: answered", "expectation: x"), 11, "expects `x`", id="P16"),
        pytest.param(
            ("arms: [present, absent, no-hook,", "arms: [absent,"), 5, "not run", id="P17"
        ),
        pytest.param(("CLAUDE.md]\n      mcp", "NONE.md]\n      mcp"), 8, "no-claude-md", id="P19"),
        pytest.param(("absent: 0.08", "absent: 0.15"), 2, "are the same", id="P24-equal"),
        pytest.param(("absent: 0.08", "absent: true"), 2, "between 0 and 1", id="P24-boolean"),
        pytest.param(("campaign:", "weekly:"), 2, "no tier", id="tier"),
    ],
)
def test_what_is_fatal_has_its_code(
    corpus: Path, tmp_path: Path, edit: tuple[str, str], code: int, says: str
) -> None:
    for path in (corpus / ".headwater" / "probe.yml", *corpus.glob("docs/probes/d0*.md")):
        path.write_text(path.read_text().replace(*edit))
    lines = [line(arm, category="discovery", repetitions=1) for arm in ("present", "no-claude-md")]
    with pytest.raises(Refusal, match=says) as refused:
        report(corpus, lines, tmp_path)
    assert refused.value.code == code


def test_a_line_that_follows_a_plans_text_is_priced_by_it(corpus: Path, tmp_path: Path) -> None:
    plan = compose_plan(corpus, tier="campaign", category="discovery", arm="mcp", repetitions=3)
    path = tmp_path / "plan.txt"
    path.write_text(render_plan(plan).replace("$0.50 each", "$0.75 each"))
    found = report(corpus, [line("mcp", plan=str(path))], tmp_path)
    assert (found.sessions, found.cents) == (9, 675)
    with pytest.raises(Refusal, match="fixes those of its line") as refused:
        report(corpus, [line("mcp", plan=str(path))], tmp_path, repetitions=2)
    assert refused.value.code == ExitCode.USAGE


def test_repetitions_are_priced_as_given_p26(corpus: Path, tmp_path: Path) -> None:
    lines = lines_of(["present"])
    found = report(corpus, lines, tmp_path, repetitions=7)
    assert found.sessions == 7 * 14
    with pytest.raises(Refusal, match="more than the 177") as refused:
        report(corpus, lines, tmp_path, repetitions=178)
    assert refused.value.code == ExitCode.PLAN_REFUSES


COUNTS = st.lists(
    st.tuples(st.sampled_from(ARMS), st.booleans(), st.integers(1, 30)), min_size=1, max_size=4
)


@given(COUNTS, st.integers(1, 50))
def test_every_sum_is_the_sum_of_the_lines(
    tmp_path_factory: pytest.TempPathFactory, counts: list[tuple[str, bool, int]], slice_of: int
) -> None:
    shares = tuple(
        Share(
            line=number,
            tier="campaign",
            arm=arm,
            category="discovery",
            leak_kept=kept,
            sessions=sessions,
            cents=sessions * 50,
        )
        for number, (arm, kept, sessions) in enumerate(counts, 1)
    )
    total = sum(sessions for _, _, sessions in counts)
    found = DryRun(
        lines=(),
        shares=shares,
        ceilings={"campaign": total * 50},
        sessions=total,
        cents=total * 50,
        max_sessions=slice_of,
        slices=math.ceil(total / slice_of),
        power=None,
        trees=(),
    )
    said = list(found.said())
    for kind in ("arm ", "tier ", "category "):
        rows = [row for row in said if row.startswith(kind)]
        assert sum(int(row.split(": ")[1].split()[0]) for row in rows) == total
    assert any(row.endswith("within it by $0.00") for row in said)


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object
) -> tuple[int, str, str]:
    monkeypatch.setattr(app, "interrupt_on_signals", lambda: None)
    monkeypatch.setattr(sys, "argv", ["recorder", "batch", "plan", *map(str, arguments)])
    code = int(app.main())
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_committed_batch_is_planned_with_no_engine_p01(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/engine.sock")
    batch = project / "examples" / "batch.yaml"
    code, out, err = run(monkeypatch, capsys, batch, "--max-sessions", 5)
    assert (code, err) == (0, "")
    assert "slices: 12 sessions in 3 slices of at most 5\n" in out
    assert "tier campaign: 12 sessions, $3.00 against a ceiling of $10.00" in out
    code, out, _ = run(monkeypatch, capsys, batch, "--json")
    assert code == 0
    assert msgspec.convert(json.loads(out), DryRun).sessions == 12
    code, _, err = run(monkeypatch, capsys, batch, "--tools")
    assert code == ExitCode.MISSING
    assert "engine" in err


@pytest.mark.parametrize("option", ["--repetitions", "--max-sessions"])
@pytest.mark.parametrize("written", ["0", "010", "-1", "abc", "1.5"])
def test_numbers_are_plain_p27(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    option: str,
    written: str,
) -> None:
    batch = project / "examples" / "batch.yaml"
    code, out, err = run(monkeypatch, capsys, batch, f"{option}={written}")
    assert (code, out) == (2, "")
    assert option in err


def test_a_leak_ends_with_nine_after_everything_is_said_p18(
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (corpus / "CLAUDE.md").write_text("a secret of s0\n")
    batch = tmp_path / "batch.yaml"
    batch.write_text(
        "corpus: corpus\nmodel: claude-sonnet-4-5\nlines:\n"
        "  - {tier: campaign, arm: present, category: sufficiency, repetitions: 1}\n"
    )
    code, out, err = run(monkeypatch, capsys, batch)
    assert code == ExitCode.NAMED
    assert "leak PROBE-S0 CLAUDE.md a secret of s0" in out
    assert "total: 11 sessions" in out
    assert "CLAUDE.md" in err


def test_what_lines_ask_in_vain_is_told_at_once_by_the_line(corpus: Path, tmp_path: Path) -> None:
    lines = [
        line("present", repetitions=1),
        line("presnt"),
        line("absent", exclude=("PROBE-NO",)),
        line("absent", tier="campagne"),
    ]
    told = []
    with pytest.raises(Refusal) as refused:
        report(corpus, lines, tmp_path)
    told.append(refused.value)
    spec = BatchSpec(corpus=str(corpus), model="m", lines=tuple(lines))
    with pytest.raises(Refusal) as refused:
        lay_lines(spec, corpus, tmp_path / "laid")
    told.append(refused.value)
    for each in told:
        assert [reason.partition(" the ")[0] for reason in each.reasons] == [
            "line 2: arm presnt:",
            "line 3: exclude PROBE-NO: no probe of this corpus",
            "line 4: tier campagne:",
        ]
    # A fault of the whole batch is told as it is, and once.
    with pytest.raises(Refusal, match=r"^[^:]*nowhere: is no directory"):
        report(corpus.with_name("nowhere"), lines, tmp_path)
