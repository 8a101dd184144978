"""Section F of the behaviours: the tree of each arm and its delta."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.plan.declaration import Declaration, load_declaration, parse_declaration
from recorder.refusal import ExitCode, Refusal
from recorder.workspace.arms import ArmDelta, delta_of, in_arm, is_history, is_under, lay_arm
from recorder.workspace.guards import guard_workspace
from recorder.workspace.manifest import manifest_of
from recorder.workspace.seal import seal

TEXT = """
instrument: [docs/probes, .headwater/export.json]
tiers:
  regression: {budget_cents: 9, session_cost_cents: 1, repetitions: 1, arms: [present]}
  campaign:
    budget_cents: 9
    session_cost_cents: 1
    repetitions: 1
    arms: [present, absent, no-hook, no-skills, no-claude-md, mcp]
    ablation: [CLAUDE.md, .claude, .githooks, .headwater]
    components:
      no-hook: [.claude/hooks/intent.sh]
      no-skills: [.claude/skills]
      no-claude-md: [CLAUDE.md]
      mcp: [.mcp.json]
  documentation:
    budget_cents: 9
    session_cost_cents: 1
    repetitions: 1
    arms: [present, absent]
    ablation: [docs, tools/copy-of-docs.txt]
    components: {no-hook: [.claude/hooks/intent.sh]}
"""
DECLARATION = parse_declaration(TEXT)
FILES = {
    "CLAUDE.md": "standing instructions",
    ".claude/settings.json": "{}",
    ".claude/hooks/intent.sh": "#!/bin/sh",
    ".claude/hooks/other.sh": "#!/bin/sh",
    ".claude/skills/a/SKILL.md": "skill",
    ".headwater/probe.yml": TEXT,
    ".headwater/export.json": "{}",
    "docs/probes/one.md": "probe",
    "docs/a.md": "a",
    "tools/copy-of-docs.txt": "a",
    "tools/probe/arms/mcp/.mcp.json": '{"mcpServers": {}}\n',
    ".git/HEAD": "ref",
    "vendor/.git": "gitdir: elsewhere",
    "vendor/x": "x",
}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    root = tmp_path / "corpus"
    for name, content in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    (root / ".claude/hooks/intent.sh").chmod(0o755)
    (root / "AGENTS.md").symlink_to("CLAUDE.md")
    return root


def laid(corpus: Path, tmp_path: Path, tier: str, arm: str) -> tuple[ArmDelta, set[str]]:
    out = tmp_path / f"{tier}-{arm}"
    delta = lay_arm(corpus, DECLARATION, tier, arm, out, home=Path("/nowhere"))
    return delta, {os.fsdecode(entry.path) for entry in manifest_of(out).entries}


PRESENT = {
    name
    for name in {*FILES, "AGENTS.md"}
    if ".git" not in name.split("/")
    and not name.startswith("docs/probes")
    and name != ".headwater/export.json"
}


@pytest.mark.parametrize(
    ("tier", "arm", "lines", "gone"),
    [
        pytest.param("campaign", "present", [], [], id="F03"),
        pytest.param(
            "campaign",
            "absent",
            ["- .claude", "- .headwater", "- CLAUDE.md"],
            ["CLAUDE.md", ".claude/", ".headwater/"],
            id="F01-F18",
        ),
        pytest.param(
            "documentation",
            "absent",
            ["- docs", "- tools/copy-of-docs.txt"],
            ["docs/", "tools/copy-of-docs.txt"],
            id="F02",
        ),
        pytest.param(
            "campaign",
            "no-hook",
            ["- .claude/hooks/intent.sh"],
            [".claude/hooks/intent.sh"],
            id="F16-F17",
        ),
        pytest.param("campaign", "no-skills", ["- .claude/skills"], [".claude/skills/"], id="F17"),
        pytest.param("campaign", "no-claude-md", ["- CLAUDE.md"], ["CLAUDE.md"], id="F17-md"),
    ],
)
def test_an_arm_is_the_present_tree_less_exactly_its_delta(
    corpus: Path, tmp_path: Path, tier: str, arm: str, lines: Sequence[str], gone: Sequence[str]
) -> None:
    delta, names = laid(corpus, tmp_path, tier, arm)
    assert list(delta.lines()) == lines
    assert names == {name for name in PRESENT if not name.startswith(tuple(gone) or ("\0",))}
    assert delta.instrument == (".headwater/export.json", "docs/probes")
    assert delta.history == (".git", "vendor/.git")


def test_the_mcp_arm_is_the_present_tree_with_the_committed_file_added_f30_f31(
    corpus: Path, tmp_path: Path
) -> None:
    delta, names = laid(corpus, tmp_path, "campaign", "mcp")
    assert list(delta.lines()) == ["+ .mcp.json"]
    assert names == PRESENT | {".mcp.json"}
    added = (tmp_path / "campaign-mcp" / ".mcp.json").read_bytes()
    assert added == FILES["tools/probe/arms/mcp/.mcp.json"].encode()
    assert delta.sentence() == "The `mcp` arm is the present tree with `.mcp.json` added."


def test_the_sentences_name_the_delta_in_declared_order_f32_f33(
    corpus: Path, tmp_path: Path
) -> None:
    delta, _ = laid(corpus, tmp_path, "campaign", "no-hook")
    assert delta.sentence() == (
        "The `no-hook` arm is the present tree less `.claude/hooks/intent.sh`."
    )
    delta, _ = laid(corpus, tmp_path, "campaign", "absent")
    assert delta.sentence() == (
        "The `absent` arm is the present tree less "
        "`CLAUDE.md`, `.claude`, `.githooks`, `.headwater`."
    )


def test_what_is_laid_is_a_copy_that_keeps_modes_and_links_and_leaves_the_corpus_alone_f19(
    corpus: Path, tmp_path: Path
) -> None:
    before = manifest_of(corpus)
    laid(corpus, tmp_path, "campaign", "present")
    out = tmp_path / "campaign-present"
    assert (out / ".claude/hooks/intent.sh").stat().st_mode & 0o777 == 0o755
    assert os.readlink(out / "AGENTS.md") == "CLAUDE.md"
    assert (out / "docs/a.md").stat().st_nlink == 1
    assert manifest_of(corpus) == before


@pytest.mark.parametrize(
    ("tier", "arm", "says"),
    [
        pytest.param("regression", "absent", "declares no ablation", id="F10"),
        pytest.param("weekly", "present", "carries no `weekly` tier", id="F11"),
        pytest.param("campaign", "no-docs", "is no arm", id="F28"),
        pytest.param("documentation", "no-hook", "does not run the `no-hook` arm", id="F29"),
        pytest.param("documentation", "mcp", "does not run the `mcp` arm", id="F29-mcp"),
    ],
)
def test_an_arm_that_is_not_declared_is_refused_and_nothing_is_laid(
    corpus: Path, tmp_path: Path, tier: str, arm: str, says: str
) -> None:
    with pytest.raises(Refusal, match=says) as refused:
        lay_arm(corpus, DECLARATION, tier, arm, tmp_path / "out", home=Path("/nowhere"))
    assert refused.value.code == ExitCode.USAGE
    assert not (tmp_path / "out").exists()


def test_an_arm_that_equals_the_present_tree_is_refused_f20(corpus: Path, tmp_path: Path) -> None:
    (corpus / "CLAUDE.md").unlink()
    (corpus / "AGENTS.md").unlink()
    with pytest.raises(Refusal, match="no different from the present tree") as refused:
        laid(corpus, tmp_path, "campaign", "no-claude-md")
    assert refused.value.code == ExitCode.INSTRUMENT
    (corpus / ".mcp.json").write_text("{}")
    with pytest.raises(Refusal, match="no different from the present tree"):
        laid(corpus, tmp_path, "campaign", "mcp")


def test_an_arm_whose_addition_the_corpus_does_not_hold_is_refused(
    corpus: Path, tmp_path: Path
) -> None:
    (corpus / "tools/probe/arms/mcp/.mcp.json").unlink()
    with pytest.raises(Refusal, match="holds no copy") as refused:
        laid(corpus, tmp_path, "campaign", "mcp")
    assert refused.value.code == ExitCode.INSTRUMENT


def test_without_an_instrument_nothing_is_removed_and_never_the_tree_itself_f05(
    corpus: Path, tmp_path: Path
) -> None:
    bare = parse_declaration(TEXT.split("\n", 2)[2])
    assert bare.instrument == ()
    out = tmp_path / "out"
    lay_arm(corpus, bare, "regression", "present", out, home=Path("/nowhere"))
    assert (out / "docs/probes/one.md").exists()


def test_an_arm_inside_the_corpus_or_under_home_is_refused_f15(
    corpus: Path, tmp_path: Path
) -> None:
    for out, home in ((corpus / "w", Path("/nowhere")), (tmp_path / "w", tmp_path)):
        with pytest.raises(Refusal) as refused:
            lay_arm(corpus, DECLARATION, "campaign", "present", out, home=home)
        assert refused.value.code == ExitCode.PLACE
        assert not out.exists()


def test_an_arm_is_never_laid_over_something(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").write_text("mine")
    with pytest.raises(Refusal, match="not empty") as refused:
        lay_arm(corpus, DECLARATION, "campaign", "present", tmp_path / "out", home=Path("/nowhere"))
    assert refused.value.code == ExitCode.USAGE


def test_a_tree_that_moves_while_it_is_laid_is_refused(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meddle(directory: Path) -> object:
        (directory / "CLAUDE.md").unlink()
        return manifest_of(directory)

    monkeypatch.setattr("recorder.workspace.arms.manifest_of", meddle)
    with pytest.raises(Refusal, match=r"more than its delta: CLAUDE\.md") as refused:
        laid(corpus, tmp_path, "campaign", "no-hook")
    assert refused.value.code == ExitCode.INSTRUMENT


PATHS = st.lists(
    st.sampled_from(
        [b"CLAUDE.md", b".claude", b".claude/x", b"docs", b"docs/probes", b"docs/a", b".git", b"z"]
    ),
    unique=True,
)


@given(PATHS, st.sampled_from(["present", "absent", "no-claude-md"]))
def test_every_arm_and_the_present_tree_differ_by_the_delta_alone(
    paths: list[bytes], arm: str
) -> None:
    removable = {"absent": {b"CLAUDE.md", b".claude"}, "no-claude-md": {b"CLAUDE.md"}}
    if arm != "present" and not removable[arm] & set(paths):
        with pytest.raises(Refusal, match="no different"):
            delta_of(paths, DECLARATION, "campaign", arm)
        return
    delta = delta_of(paths, DECLARATION, "campaign", arm)
    present = delta_of(paths, DECLARATION, "campaign", "present")
    one = {path for path in paths if in_arm(path, DECLARATION, present)}
    two = {path for path in paths if in_arm(path, DECLARATION, delta)}
    assert two <= one
    assert all(is_under(path, delta.removed) for path in one - two)
    assert not any(is_history(path) for path in one)


@pytest.mark.parametrize("arm", ["present", "absent"])
def test_both_arms_of_the_example_lay_seal_and_pass_the_guards(
    project: Path, tmp_path: Path, arm: str
) -> None:
    corpus = project / "examples" / "corpus"
    declaration: Declaration = load_declaration(corpus, ExitCode.USAGE)
    probes = ["PROBE-EX-units", "PROBE-EX-report", "PROBE-EX-outside"]
    out = tmp_path / "out" / arm
    lay_arm(corpus, declaration, "campaign", arm, out, home=Path("/nowhere"))
    seal(out, probes, corpus, declaration)
    guard_workspace(
        out,
        corpus=corpus,
        declaration=declaration,
        probes=probes,
        out=tmp_path / "out",
        home=Path("/nowhere"),
    )
    assert (out / "docs" / "decisions").is_dir()
    assert (out / "CLAUDE.md").exists() == (arm == "present")
