"""The native plan: byte for byte the engine's over its fixtures, and its refusals."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

import recorder
from recorder.plan.composition import Plan, compose_plan, dollars, selection_digest
from recorder.plan.reading import MEMBERS, read_plan
from recorder.plan.rendering import REFUSAL_HEADING, render_plan
from recorder.refusal import ExitCode, Refusal

DECLARATION = """
instrument: [docs/probes]
tiers:
  regression: {budget_cents: 100, session_cost_cents: 25, repetitions: 2, arms: [present]}
  campaign:
    budget_cents: 400
    session_cost_cents: 25
    repetitions: 2
    max_turns: 80
    arms: [present, absent, mcp]
    ablation: [CLAUDE.md, tools]
    components: {mcp: [.mcp.json]}
"""


@pytest.fixture
def fixture_corpus(shared: Path, tmp_path: Path) -> Path:
    source = shared / "conformance" / "headwater" / "fixtures"
    corpus = tmp_path / "corpus-of-fixtures"
    shutil.copytree(source / "corpus", corpus / "corpus")
    # The reference material comes without write bits, and copytree keeps modes.
    for directory in (corpus / "corpus", *(corpus / "corpus").rglob("*")):
        directory.chmod(directory.stat().st_mode | 0o200)
    (corpus / ".headwater").mkdir()
    declaration = (source / "probe.yml").read_text()
    (corpus / ".headwater" / "probe.yml").write_text(
        declaration + "\nshelves: [corpus/probes, corpus/probe-runs]\n"
    )
    return corpus


def plant(corpus: Path, path: str, text: str) -> None:
    (corpus / path).parent.mkdir(parents=True, exist_ok=True)
    (corpus / path).write_text(text)


def probe(
    corpus: Path,
    name: str,
    *,
    expectation: str = "answered",
    category: str = "sufficiency",
    examines: str = "",
    answers: str = "[yes, no]",
) -> None:
    block = f"```yaml\nanswers: {answers}\n```\n" if expectation == "answered" else ""
    relations = f"relations:\n  examines: [{examines}]\n" if examines else ""
    plant(
        corpus,
        f"docs/probes/{name}.md",
        f"---\nid: PROBE-EX-{name}\nprobe_category: {category}\nexpectation: {expectation}\n"
        f"{relations}---\n\n## Task\n\nDo {name}.\n\n## Expectation\n\n{block}",
    )


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    plant(root, ".headwater/probe.yml", DECLARATION)
    plant(root, ".headwater/taxonomy.lock", "lock\n")
    plant(root, "docs/a.md", "---\nid: EX-DOC-0001\n---\n\ntext\n")
    plant(root, "docs/notes.txt", "no document\n")
    plant(root, "docs/README.md", "# no front matter\n")
    probe(root, "one")
    probe(root, "two", expectation="opened", category="discovery", examines="EX-DOC-0001")
    return root


def plan(corpus: Path, **options: object) -> Plan:
    return compose_plan(corpus, **{"tier": "regression", **options})  # type: ignore[arg-type]


def test_the_plan_of_the_fixtures_is_the_engines_byte_for_byte_s01_b13_b14_b15_b16(
    fixture_corpus: Path, shared: Path
) -> None:
    expected = (shared / "conformance" / "headwater" / "fixtures" / "plan.txt").read_text()
    composed = compose_plan(fixture_corpus, tier="regression", lock="sha256:fixture")
    ours = expected.replace("harness: 0.2.1", f"harness: {recorder.__version__}")
    assert render_plan(composed) == ours
    assert ours != expected


def test_the_older_plan_of_the_fixtures_has_the_digest_of_its_five_documents_s01(
    fixture_corpus: Path,
) -> None:
    shutil.rmtree(fixture_corpus / "corpus" / "probe-runs")
    members = compose_plan(
        fixture_corpus, tier="regression", lock="sha256:fixture"
    ).identity_members
    assert members.tree == members.read_set
    assert members.tree.startswith("sha256:9cd0571c")


def test_the_campaign_of_the_fixtures_is_over_its_ceiling_b17_b21(fixture_corpus: Path) -> None:
    composed = compose_plan(fixture_corpus, tier="campaign", lock="sha256:fixture")
    assert composed.refusal == (
        "580 sessions project $145.00 against a declared ceiling of $1.00, "
        "so the run does not start"
    )
    text = render_plan(composed)
    assert f"\n{REFUSAL_HEADING}\n" in text
    assert "## The cost" in text
    assert "## The selection" not in text
    assert "## The read set" not in text


def test_a_cost_equal_to_the_ceiling_starts_and_one_above_does_not_b17(corpus: Path) -> None:
    assert plan(corpus).projected_cents == 100
    assert plan(corpus).refusal is None
    probe(corpus, "three")
    refusal = plan(corpus).refusal
    assert refusal is not None
    assert "6 sessions project $1.50 against a declared ceiling of $1.00" in refusal


def test_the_members_move_with_what_they_cover_and_with_nothing_else(corpus: Path) -> None:
    before = plan(corpus).identity_members
    plant(corpus, "docs/b.md", "---\nid: EX-DOC-0002\n---\nnew\n")
    after = plan(corpus).identity_members
    assert before.tree != after.tree
    assert before.read_set == after.read_set
    plant(corpus, "docs/a.md", "---\nid: EX-DOC-0001\n---\n\nedited\n")
    moved = plan(corpus).identity_members
    assert moved.read_set != after.read_set
    assert moved.selection == after.selection
    assert plan(corpus, seed=7).identity_members.seed == 7


def test_the_selection_digest_is_of_sorted_identifiers_without_a_last_line_feed() -> None:
    assert selection_digest(["b", "a"]) == selection_digest(["a", "b"])
    assert selection_digest(["a"]).endswith("bb")


def test_the_lock_is_given_or_the_corpus_own_or_the_plan_cannot_be_made(
    corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "other.lock").write_text("lock\n")
    own = plan(corpus).identity_members.lock
    assert own == plan(corpus, lock=str(tmp_path / "other.lock")).identity_members.lock
    assert plan(corpus, lock="sha256:x").identity_members.lock == "sha256:x"
    (corpus / ".headwater" / "taxonomy.lock").unlink()
    with pytest.raises(Refusal, match="--lock") as refused:
        plan(corpus)
    assert refused.value.code == ExitCode.PLAN


def test_category_exclude_repetitions_and_arm_narrow_the_plan_b10(corpus: Path) -> None:
    narrowed = plan(corpus, category="discovery")
    assert [item.id for item in narrowed.selected] == ["PROBE-EX-two"]
    excluded = plan(corpus, exclude=["PROBE-EX-one"])
    assert excluded.identity_members.selection == narrowed.identity_members.selection
    assert plan(corpus, repetitions=1).sessions == 2
    one_arm = plan(corpus, tier="campaign", arm="absent")
    assert one_arm.arms == ("absent",)
    assert one_arm.sessions == 4


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        ({"tier": "weekly"}, ExitCode.USAGE, "the tiers are"),
        ({"category": "other"}, ExitCode.USAGE, "categories are"),
        ({"repetitions": 0}, ExitCode.USAGE, "at least 1"),
        ({"seed": -1}, ExitCode.USAGE, "--seed"),
        ({"arm": "absent"}, ExitCode.PLAN, "does not run it"),
        ({"exclude": ["PROBE-EX-none"]}, ExitCode.PLAN, "no probe of this corpus"),
    ],
)
def test_an_impossible_request_is_refused_with_its_reason(
    corpus: Path, options: dict[str, object], code: ExitCode, says: str
) -> None:
    with pytest.raises(Refusal, match=says) as refused:
        plan(corpus, **options)
    assert refused.value.code == code


def test_two_documents_of_one_identifier_are_no_plan(corpus: Path) -> None:
    plant(corpus, "docs/b.md", "---\nid: EX-DOC-0001\n---\n")
    with pytest.raises(Refusal, match=r"docs/b\.md.*EX-DOC-0001.*docs/a\.md") as refused:
        plan(corpus)
    assert refused.value.code == ExitCode.PLAN


def test_a_tier_the_declaration_does_not_carry_is_a_plan_that_refuses_b20(corpus: Path) -> None:
    composed = plan(corpus, tier="documentation")
    assert composed.refusal is not None
    assert "carries no `documentation` tier" in composed.refusal
    assert len(composed.selected) == 2
    assert "## The cost" not in render_plan(composed)


def test_more_repetitions_than_declared_are_refused(corpus: Path) -> None:
    assert "more than the 2" in str(plan(corpus, repetitions=3).refusal)


def test_a_bad_probe_ends_the_whole_plan_and_selects_nothing_b19(corpus: Path) -> None:
    probe(corpus, "bad", answers="[]")
    composed = plan(corpus)
    assert composed.refusal == "docs/probes/bad.md expects `answered` and declares no `answers`"
    assert composed.selected == ()
    with pytest.raises(Refusal, match="refuses this run") as refused:
        composed.probe("PROBE-EX-one")
    assert refused.value.code == ExitCode.PLAN_REFUSES


def test_a_probe_that_examines_no_document_of_the_corpus_is_refused(corpus: Path) -> None:
    probe(corpus, "lost", expectation="opened", examines="EX-DOC-0009")
    assert "EX-DOC-0009, which no document" in str(plan(corpus).refusal)


def test_a_probe_that_examines_the_instrument_is_refused_at_every_tier(corpus: Path) -> None:
    probe(corpus, "self", expectation="opened", examines="PROBE-EX-one")
    assert "part of the instrument" in str(plan(corpus).refusal)


def test_a_probe_that_an_arm_cannot_satisfy_is_refused_unless_left_out_b02(corpus: Path) -> None:
    probe(corpus, "tool", expectation="opened", category="navigability", examines="tools/run.py")
    assert "which the `absent` arm of the campaign tier removes" in str(
        plan(corpus, tier="campaign").refusal
    )
    assert "absent" in str(plan(corpus, tier="campaign", arm="present").refusal)
    narrowed = plan(corpus, tier="campaign", category="sufficiency")
    assert narrowed.refusal is None
    anchored = plan(corpus, category="navigability")
    assert "examines: tools/run.py at tools/run.py\n" in render_plan(anchored)
    assert [item.path for item in anchored.read_set] == ["docs/probes/tool.md"]


def test_an_absent_arm_without_an_ablation_is_refused(corpus: Path) -> None:
    plant(
        corpus,
        ".headwater/probe.yml",
        DECLARATION.replace("    ablation: [CLAUDE.md, tools]\n", ""),
    )
    assert "declares no ablation" in str(plan(corpus, tier="campaign").refusal)
    assert plan(corpus).refusal is None


def test_an_empty_selection_is_refused(corpus: Path) -> None:
    assert "no probe" in str(plan(corpus, category="consistency").refusal)


def test_a_probe_the_plan_does_not_select_is_eleven_b03(corpus: Path) -> None:
    composed = plan(corpus, category="discovery")
    assert composed.probe("PROBE-EX-two").task == "Do two."
    with pytest.raises(Refusal, match="does not select PROBE-EX-one") as refused:
        composed.probe("PROBE-EX-one")
    assert refused.value.code == ExitCode.PLAN_REFUSES


def test_what_is_printed_reads_back_as_what_was_planned_b05_b06_b07(corpus: Path) -> None:
    composed = plan(corpus, tier="campaign", seed=3)
    read = read_plan(render_plan(composed), "plan.txt")
    assert tuple(read.members) == MEMBERS
    members = composed.identity_members
    assert read.members["tree"] == members.tree
    assert read.members["seed"] == "3"
    assert read.members["harness"] == recorder.__version__
    assert (read.tier, read.arms) == ("campaign", ("present", "absent", "mcp"))
    assert read.max_turns == composed.max_turns == 80
    assert read.session_cost_cents == 25
    assert read.probe("PROBE-EX-one").answers == ("no", "yes")
    assert read.probe("PROBE-EX-two").answers == ()
    assert read.read_set == {item.path: item.digest for item in composed.read_set}


def test_a_link_on_a_shelf_is_no_document(corpus: Path) -> None:
    before = plan(corpus).classified
    (corpus / "docs" / "link.md").symlink_to("a.md")
    assert plan(corpus).classified == before


@pytest.mark.parametrize(("cents", "said"), [(0, "$0.00"), (5, "$0.05"), (125, "$1.25")])
def test_money_is_dollars_and_cents(cents: int, said: str) -> None:
    assert dollars(cents) == said


@pytest.mark.parametrize(("tier", "sessions"), [("regression", 3), ("campaign", 12)])
def test_the_example_corpus_has_a_plan_of_each_tier(
    project: Path, tier: str, sessions: int
) -> None:
    composed = compose_plan(project / "examples" / "corpus", tier=tier)
    assert composed.refusal is None
    assert composed.sessions == sessions
    assert all(probe.task for probe in composed.selected)


def test_two_thousand_documents_are_planned_within_two_seconds(corpus: Path) -> None:
    for number in range(2000):
        plant(
            corpus,
            f"docs/d{number % 20}/{number:04}.md",
            f"---\nid: EX-NOTE-{number:04}\nsummary: 'a: b'\n---\n\n" + "text " * 400,
        )
    started = time.process_time()
    assert plan(corpus).classified == 2003
    assert time.process_time() - started < 2
