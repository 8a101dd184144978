"""What the seal and the arms list: sections D and F of the behaviours."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recorder.plan.declaration import load_declaration, parse_declaration
from recorder.refusal import ExitCode, Refusal
from recorder.workspace.arms import diff_arm, lay_arm
from recorder.workspace.guards import guard_workspace
from recorder.workspace.listing import fold_lines, instrument_lines, key_lines, named_lines
from recorder.workspace.manifest import manifest_of
from recorder.workspace.naming import Names, Subject, unescaped
from recorder.workspace.seal import seal, secrets_of

TEXT = """
instrument: [docs/probes, docs/probe-runs, docs/probe-results, .headwater/export.json]
folds: [.headwater/nav.yml, .headwater/gone.yml, .headwater/corpus.json]
answer_keys: {PROBE-FIX-keyed: [docs/obligations/0198-session-budget.md]}
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
      no-claude-md: [CLAUDE.md]
      mcp: [.mcp.json]
      no-skills: [.claude/skills]
"""
DECLARATION = parse_declaration(TEXT)


def probe(identifier: str) -> str:
    return (
        f"---\nid: {identifier}\nprobe_category: discovery\nexpectation: answered\n---\n"
        "## Task\n\nDo it.\n\n## Expectation\n\n```yaml\nanswers: [yes, no]\n```\n"
    )


FILES = {
    ".headwater/probe.yml": TEXT,
    ".headwater/nav.yml": "- PROBE-FIX-opened\n- HW-OBL-0013\n- HW-OBL-0014\n",
    ".headwater/export.json": "{}",
    ".headwater/corpus.json": '{"documents": [{"id": "HW-OBL-0013"}, {"id": "z"}]}',
    ".claude/hooks/intent.sh": "#!/bin/sh\n",
    ".claude/skills/a/SKILL.md": "---\ndescription: x\n---\n",
    ".headwater/arms/mcp/.mcp.json": '{"mcpServers": {}}\n',
    "CLAUDE.md": "standing\n",
    "docs/probes/0001-opened.md": probe("PROBE-FIX-opened"),
    "docs/probes/0002-keyed.md": probe("PROBE-FIX-keyed"),
    "docs/obligations/0013-nothing-says.md": "---\nid: HW-OBL-0013\n---\nFor PROBE-FIX-opened.\n",
    "docs/obligations/0014-other.md": "---\nid: HW-OBL-0014\n---\nOther.\n",
    "docs/obligations/0198-session-budget.md": "---\nid: HW-OBL-0198\n---\nThe answer.\n",
    "docs/spec/13.md": "HW-OBL-0013 | open\nHW-OBL-0014 | open\n",
}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    plant(tmp_path / "corpus", FILES)
    return tmp_path / "corpus"


@pytest.fixture
def workspace(corpus: Path, tmp_path: Path) -> Path:
    shutil.copytree(corpus, tmp_path / "workspace")
    return tmp_path / "workspace"


def plant(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


def test_the_instrument_is_listed_as_declared_f04() -> None:
    assert instrument_lines(DECLARATION) == (
        "docs/probes",
        "docs/probe-runs",
        "docs/probe-results",
        ".headwater/export.json",
    )


@pytest.mark.parametrize(
    "form",
    [
        pytest.param("[docs/probes, .x]  # why", id="F06"),
        pytest.param("\n    - docs/probes\n    - .x", id="F07"),
        pytest.param("\n  - docs/probes\n  - '.x'", id="two-spaces"),
        pytest.param("\n- docs/probes # a\n-   .x/", id="none"),
    ],
)
def test_every_yaml_form_lists_the_same(form: str) -> None:
    declared = parse_declaration(f"instrument: {form}\ntiers:" + TEXT.partition("tiers:")[2])
    assert instrument_lines(declared) == ("docs/probes", ".x")
    folds = parse_declaration(f"folds: {form}\ntiers:" + TEXT.partition("tiers:")[2])
    assert folds.folds == ("docs/probes", ".x")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("instrument: [docs/probes, ../outside]", id="F08"),
        pytest.param("folds: [../outside]", id="D31"),
        pytest.param("answer_keys: {P: [../outside]}", id="D35"),
        pytest.param("folds: [/outside]", id="absolute"),
        pytest.param("instrument: [a/../..]", id="climbing"),
        pytest.param("other: 1", id="D32"),
        pytest.param("instrument: docs/probes", id="scalar"),
    ],
)
def test_a_declaration_is_read_whole_or_refused_whole(corpus: Path, text: str) -> None:
    (corpus / ".headwater/probe.yml").write_text(text + "\ntiers:" + TEXT.partition("tiers:")[2])
    with pytest.raises(Refusal, match="the whole file is refused") as refused:
        load_declaration(corpus, ExitCode.INSTRUMENT)
    assert refused.value.code == ExitCode.INSTRUMENT


def test_folds_that_the_corpus_holds_are_listed_d28_d29_d30(corpus: Path) -> None:
    lines = fold_lines(corpus, DECLARATION)
    assert lines == (".headwater/nav.yml", ".headwater/corpus.json")
    assert all((corpus / line).exists() for line in lines)
    bare = parse_declaration("tiers:" + TEXT.partition("tiers:")[2])
    assert fold_lines(corpus, bare) == ()
    block = parse_declaration(
        TEXT.replace(
            "[.headwater/nav.yml, .headwater/gone.yml, .headwater/corpus.json]",
            "\n    - .headwater/nav.yml\n    - .headwater/corpus.json",
        )
    )
    assert fold_lines(corpus, block) == lines


def test_a_key_is_listed_by_its_identifier_and_path_d20_d21(corpus: Path) -> None:
    key = "docs/obligations/0198-session-budget.md"
    assert key_lines(corpus, DECLARATION, "PROBE-FIX-keyed") == (f"HW-OBL-0198 {key}",)
    assert key_lines(corpus, DECLARATION, "PROBE-FIX-opened") == ()
    (corpus / key).write_text("No front matter.\n")
    assert key_lines(corpus, DECLARATION, "PROBE-FIX-keyed") == (f"0198-session-budget {key}",)
    with pytest.raises(Refusal, match="PROBE-FIX-none") as refused:
        key_lines(corpus, DECLARATION, "PROBE-FIX-none")
    assert refused.value.code == ExitCode.USAGE


def test_a_document_that_names_the_probe_is_listed_by_both_its_names_d22(corpus: Path) -> None:
    assert named_lines(corpus, DECLARATION, "PROBE-FIX-opened") == (
        "HW-OBL-0013",
        "0013-nothing-says.md",
    )
    assert named_lines(corpus, DECLARATION, "PROBE-FIX-keyed") == ()
    plant(corpus, {"docs/notes/long-name.md": "0001-opened"})
    assert named_lines(corpus, DECLARATION, "PROBE-FIX-opened")[:1] == ("long-name.md",)


@pytest.mark.parametrize(
    ("arm", "lines"),
    [
        pytest.param("no-hook", ("- .claude/hooks/intent.sh",), id="F17-hook"),
        # F24: the last delta of the declaration is read like the first.
        pytest.param("no-skills", ("- .claude/skills",), id="F17-skills-F24"),
        pytest.param("no-claude-md", ("- CLAUDE.md",), id="F17-claude"),
        pytest.param("mcp", ("+ .mcp.json",), id="F17-mcp"),
        pytest.param("absent", ("- .claude", "- .headwater", "- CLAUDE.md"), id="F18"),
        pytest.param("present", (), id="present"),
    ],
)
def test_the_difference_of_an_arm_is_listed_and_nothing_is_written_f19(
    corpus: Path, tmp_path: Path, arm: str, lines: tuple[str, ...]
) -> None:
    tree = tmp_path / "present"
    lay_arm(corpus, DECLARATION, "campaign", "present", tree, home=Path("/nowhere"))
    before = manifest_of(tree), manifest_of(corpus)
    assert diff_arm(corpus, DECLARATION, "campaign", arm).lines() == lines
    assert diff_arm(corpus, DECLARATION, "campaign", arm, tree).lines() == lines
    assert (manifest_of(tree), manifest_of(corpus)) == before


def test_a_difference_that_is_none_is_refused_f20_p19(corpus: Path, tmp_path: Path) -> None:
    tree = tmp_path / "present"
    lay_arm(corpus, DECLARATION, "campaign", "present", tree, home=Path("/nowhere"))
    (tree / "CLAUDE.md").unlink()
    with pytest.raises(Refusal, match="no different from the present tree") as refused:
        diff_arm(corpus, DECLARATION, "campaign", "no-claude-md", tree)
    assert refused.value.code == ExitCode.INSTRUMENT
    (corpus / ".headwater/arms/mcp/.mcp.json").unlink()
    with pytest.raises(Refusal, match="holds no copy") as refused:
        diff_arm(corpus, DECLARATION, "campaign", "mcp")
    assert refused.value.code == ExitCode.INSTRUMENT


def test_a_difference_over_a_tree_that_holds_the_instrument_is_refused_f22(
    corpus: Path, workspace: Path
) -> None:
    with pytest.raises(Refusal, match="still holds the instrument") as refused:
        diff_arm(corpus, DECLARATION, "campaign", "no-hook", workspace)
    assert refused.value.code == ExitCode.INSTRUMENT


def test_a_delta_that_is_a_scalar_is_named_f26() -> None:
    with pytest.raises(ValueError, match="`no-hook` delta of the `campaign` tier is not a sequen"):
        parse_declaration(TEXT.replace("[.claude/hooks/intent.sh]", ".claude/hooks/intent.sh"))


def test_an_ablation_in_block_form_with_a_quoted_entry_removes_its_entries_f14(
    corpus: Path, tmp_path: Path
) -> None:
    block = parse_declaration(
        TEXT.replace("[CLAUDE.md, .claude, .githooks, .headwater]", '\n      - "CLAUDE.md"')
    )
    tree = tmp_path / "absent"
    delta = lay_arm(corpus, block, "campaign", "absent", tree, home=Path("/nowhere"))
    assert delta.lines() == ("- CLAUDE.md",)
    assert not (tree / "CLAUDE.md").exists()
    assert (tree / ".claude/hooks/intent.sh").exists()


# Names that are written with escapes: a JSON reader, and so a session, reads them whole.


def escaped(name: str) -> str:
    return "".join(f"\\u{ord(letter):04x}" for letter in name)


@pytest.mark.parametrize(
    "written",
    [
        escaped("PROBE-FIX-opened"),
        "PROBE\\u002DFIX\\u002dopened",
        "PROBE\\x2dFIX-opened",
        "first line\\nPROBE-FIX-opened",
        "\\tPROBE-FIX-opened\\n",
        "docs\\/probes\\/0001-opened.md",
    ],
)
def test_a_name_written_with_escapes_is_found_and_sealed(
    workspace: Path, corpus: Path, written: str
) -> None:
    plant(workspace, {"data/x.json": f'{{"a": ["{written}"]}}', "src/x.py": f'"{written}"\n'})
    seal(workspace, ["PROBE-FIX-opened"], corpus, DECLARATION)
    assert not (workspace / "data/x.json").exists()
    assert not (workspace / "src/x.py").exists()


def test_a_fold_with_an_escaped_document_name_loses_its_element(
    workspace: Path, corpus: Path
) -> None:
    first = escaped("HW-OBL-0013")
    text = f'{{"documents": [{{"id": "{first}"}}, {{"id": "z"}}], "s": "\\u00e9"}}'
    plant(workspace, {".headwater/corpus.json": text})
    seal(workspace, ["PROBE-FIX-opened"], corpus, DECLARATION)
    left = (workspace / ".headwater/corpus.json").read_text()
    assert json.loads(left) == {"documents": [{"id": "z"}], "s": "é"}
    assert "\\u00e9" in left


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_a_text_as_json_writes_it_names_what_it_names(text: str) -> None:
    names = Names([Subject(b"p/x-y.md", b"PROBE-A", b"x-y", False, True, "PROBE-A")])
    for ascii_only in (True, False):
        written = json.dumps(f"{text} PROBE-A", ensure_ascii=ascii_only)
        assert names.found(written.encode())
        if "PROBE-A" not in text and "x-y" not in text:
            quiet = json.dumps(text, ensure_ascii=ascii_only).encode()
            assert bool(names.found(quiet)) == bool(names.found(text.encode()))
    assert unescaped(b"a\\u002db\\\\u002d") == b"a-b\\u002d"


@pytest.mark.parametrize("place", ["folder", "file"])
@pytest.mark.parametrize("verb", ["seal-D24", "guard-C19"])
def test_what_cannot_be_read_stops_the_seal_and_the_guard_with_their_codes(
    workspace: Path,
    corpus: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    verb: str,
) -> None:
    plant(workspace, {"closed/x": "x"})
    if verb.startswith("guard"):
        seal(workspace, ["PROBE-FIX-opened"], corpus, DECLARATION)
    secret = os.fsencode(workspace / ("closed" if place == "folder" else "closed/x"))
    scandir, opened = os.scandir, os.open

    def refuse_scan(path: bytes) -> object:
        if os.fsencode(path) == secret:
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    def refuse_open(path: bytes, flags: int, *rest: int) -> int:
        if os.fsencode(path) == secret:
            raise PermissionError(13, "Permission denied")
        return opened(path, flags, *rest)

    def run() -> None:
        probes = ["PROBE-FIX-opened"]
        if verb.startswith("seal"):
            seal(workspace, probes, corpus, DECLARATION)
            return
        guard_workspace(
            workspace,
            corpus=corpus,
            declaration=DECLARATION,
            probes=probes,
            home=Path("/nowhere"),
        )

    monkeypatch.setattr(os, "scandir", refuse_scan)
    monkeypatch.setattr(os, "open", refuse_open)
    code = ExitCode.NAMED if verb.startswith("guard") else ExitCode.INSTRUMENT
    with pytest.raises(Refusal, match=r"closed.*cannot be (read|listed)") as refused:
        run()
    assert refused.value.code == code
    monkeypatch.undo()
    assert (workspace / "docs/probes").exists() != verb.startswith("guard")


NAMED = st.sampled_from(["PROBE-P0", "PROBE-P3", "0004-a-probe.md", "HW-OBL-0002", "REC-x", "z"])


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.lists(NAMED, max_size=4), min_size=6, max_size=6))
def test_a_seal_for_seven_probes_leaves_no_name_of_a_removed_document_d36(
    tmp_path: Path, words: list[list[str]]
) -> None:
    corpus, workspace = tmp_path / "c", tmp_path / "w"
    for tree in (corpus, workspace):
        shutil.rmtree(tree, ignore_errors=True)
    probes = [f"PROBE-P{number}" for number in range(7)]
    files = {f"docs/probes/{n:04}-a-probe.md": probe(name) for n, name in enumerate(probes)}
    files["docs/obligations/0002-a-record.md"] = "---\nid: HW-OBL-0002\n---\nfor PROBE-P2\n"
    for number, content in enumerate(words):
        body = "\n".join(content)
        files[f"docs/notes/{number:04}-note.md"] = f"---\nid: HW-NOTE-000{number}\n---\n{body}\n"
        files[f"data/{number}.json"] = json.dumps({"a": content, "b": [{"id": content}]})
        files[".headwater/nav.yml"] = files.get(".headwater/nav.yml", "") + body + "\n"
    plant(corpus, files)
    shutil.copytree(corpus, workspace)
    declared = parse_declaration(TEXT.replace("PROBE-FIX-keyed:", "PROBE-OTHER:"))
    sealing = seal(workspace, probes, corpus, declared)
    assert "HW-OBL-0002" in sealing.documents
    secrets = secrets_of(corpus, declared, probes)
    gone = Names(
        subject
        for subject in secrets.documents
        if not (workspace / os.fsdecode(subject.path)).exists()
    )
    for entry in manifest_of(workspace).entries:
        content = (workspace / os.fsdecode(entry.path)).read_bytes()
        assert gone.found(content) == (), entry.path
        if entry.path.endswith(b".json"):
            json.loads(content)
