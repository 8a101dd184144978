"""Sections C and D of the behaviours: the seal, and the guards that run its code."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import recorder.workspace.seal
from recorder.plan.declaration import Declaration, parse_declaration
from recorder.refusal import ExitCode, Refusal
from recorder.workspace.guards import guard_workspace
from recorder.workspace.manifest import manifest_of
from recorder.workspace.place import outside_home
from recorder.workspace.seal import Sealing, seal, secrets_of

TEXT = """
instrument: [docs/probes, docs/runs, .headwater/export.json]
folds: [.headwater/nav.yml, .headwater/overlay.yml, .headwater/corpus.json, .headwater/probe.yml]
answer_keys:
  PROBE-FIX-keyed: [docs/obligations/0198-session-budget.md]
tiers:
  regression: {budget_cents: 9, session_cost_cents: 1, repetitions: 1, arms: [present]}
"""
DECLARATION = parse_declaration(TEXT)
PROBES = ("PROBE-FIX-opened", "PROBE-FIX-keyed")


def probe(identifier: str) -> str:
    return (
        f"---\nid: {identifier}\nprobe_category: discovery\nexpectation: answered\n---\n"
        "## Task\n\nDo it.\n\n## Expectation\n\n```yaml\nanswers: [yes, no]\n```\n"
    )


FILES = {
    ".headwater/probe.yml": TEXT,
    ".headwater/nav.yml": "- PROBE-FIX-opened\n- HW-OBL-0013\n- HW-OBL-0014\n",
    ".headwater/overlay.yml": "# 0001-opened.md\n",
    ".headwater/corpus.json": json.dumps(
        {"documents": [{"id": "HW-OBL-0013"}, {"id": "PROBE-FIX-opened"}, {"id": "z"}]}
    ),
    ".headwater/export.json": "{}",
    ".headwater/ids/obligation/HW-OBL-0013": "claimed\n",
    ".headwater/ids/obligation/HW-OBL-0014": "claimed\n",
    ".headwater/ids/obligation/HW-OBL-0198": "claimed\n",
    "docs/probes/0001-opened.md": probe("PROBE-FIX-opened"),
    "docs/probes/0002-keyed.md": probe("PROBE-FIX-keyed"),
    "docs/runs/first.md": "PROBE-FIX-opened answered yes\n",
    "docs/obligations/0013-nothing-says.md": "---\nid: HW-OBL-0013\n---\nFor PROBE-FIX-opened.\n",
    "docs/obligations/0014-other.md": "---\nid: HW-OBL-0014\n---\nOther.\n",
    "docs/obligations/0198-session-budget.md": "---\nid: HW-OBL-0198\n---\nThe answer.\n",
    "docs/obligations/index.md": "[a](0013-nothing-says.md)\n[b](0014-other.md)\n",
    "docs/evaluations/README.md": "The probe 0001-opened was hard.\n",
    "docs/spec/13.md": "HW-OBL-0013 | open\nHW-OBL-0014 | open\nHW-OBL-0198 | x\n",
    "docs/spec/14.md": "README.md and README\n",
    "docs/glossary.md": "no names\n",
    "tools/checks.sh": "test PROBE-FIX-opened = yes\n",
    "README.md": "See glossary.md.\n",
}


def plant(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    plant(tmp_path / "corpus", FILES)
    return tmp_path / "corpus"


@pytest.fixture
def workspace(corpus: Path, tmp_path: Path) -> Path:
    shutil.copytree(corpus, tmp_path / "workspace")
    return tmp_path / "workspace"


def sealed(workspace: Path, corpus: Path, *probes: str) -> Sealing:
    return seal(workspace, probes or PROBES, corpus, DECLARATION)


def guard(
    workspace: Path, corpus: Path, *probes: str, declaration: Declaration = DECLARATION
) -> None:
    guard_workspace(
        workspace,
        corpus=corpus,
        declaration=declaration,
        probes=probes or PROBES,
        home=Path("/nowhere"),
    )


def refused(workspace: Path, corpus: Path, *probes: str) -> Refusal:
    with pytest.raises(Refusal) as caught:
        guard(workspace, corpus, *probes)
    return caught.value


def names(root: Path) -> set[str]:
    return {os.fsdecode(entry.path) for entry in manifest_of(root).entries}


def test_the_seal_takes_what_gives_an_answer_away_and_nothing_else_d01_d05_d18_d19_d23_d26(
    workspace: Path, corpus: Path
) -> None:
    sealed(workspace, corpus)
    assert set(FILES) - names(workspace) == {
        ".headwater/export.json",
        "docs/probes/0001-opened.md",
        "docs/probes/0002-keyed.md",
        "docs/runs/first.md",
        "docs/obligations/0013-nothing-says.md",
        "docs/obligations/0198-session-budget.md",
        ".headwater/ids/obligation/HW-OBL-0013",
        ".headwater/ids/obligation/HW-OBL-0198",
        "docs/evaluations/README.md",
        "tools/checks.sh",
    }
    for gone in ("docs/probes", "docs/evaluations", "tools"):
        assert not (workspace / gone).exists()


def test_lines_that_name_a_removed_document_go_and_the_rest_stays_d06_d07_d09_d19(
    workspace: Path, corpus: Path
) -> None:
    sealed(workspace, corpus)
    assert (workspace / "docs/spec/13.md").read_text() == "HW-OBL-0014 | open\n"
    assert (workspace / "docs/obligations/index.md").read_text() == "[b](0014-other.md)\n"
    assert (workspace / "docs/spec/14.md").read_text() == FILES["docs/spec/14.md"]
    assert (workspace / ".headwater/nav.yml").read_text() == "- PROBE-FIX-opened\n- HW-OBL-0014\n"
    assert json.loads((workspace / ".headwater/corpus.json").read_text()) == {
        "documents": [{"id": "PROBE-FIX-opened"}, {"id": "z"}]
    }


def test_the_report_names_what_went_d08_d09(workspace: Path, corpus: Path) -> None:
    lines = sealed(workspace, corpus, "PROBE-FIX-opened").lines()
    assert (
        "seal: removed the named document HW-OBL-0013 of PROBE-FIX-opened, and 4 lines naming it"
        in lines
    )
    assert "seal: kept every line naming README" in lines
    assert "seal: removed the instrument docs/probes" in lines
    assert "seal: removed tools/checks.sh, which names PROBE-FIX-opened" in lines


def test_a_second_seal_has_nothing_to_do_d02_and_the_guards_pass_d03_c21_c28(
    workspace: Path, corpus: Path
) -> None:
    sealed(workspace, corpus)
    before = manifest_of(workspace)
    again = sealed(workspace, corpus)
    assert again.nothing
    assert again.lines() == ("seal: nothing to do",)
    assert manifest_of(workspace) == before
    guard(workspace, corpus)


def test_a_dry_run_says_the_same_and_changes_nothing(workspace: Path, corpus: Path) -> None:
    before = manifest_of(workspace)
    planned = seal(workspace, PROBES, corpus, DECLARATION, dry_run=True)
    assert manifest_of(workspace) == before
    assert planned == sealed(workspace, corpus)


def test_a_key_is_sealed_for_its_own_probe_alone(workspace: Path, corpus: Path) -> None:
    sealed(workspace, corpus, "PROBE-FIX-opened")
    assert (workspace / "docs/obligations/0198-session-budget.md").exists()
    guard(workspace, corpus, "PROBE-FIX-opened")
    assert refused(workspace, corpus, "PROBE-FIX-keyed").code == ExitCode.NAMED


def test_a_one_word_document_goes_and_lines_with_its_word_stay_d10(
    workspace: Path, corpus: Path
) -> None:
    for root in (workspace, corpus):
        (root / "docs/glossary.md").write_text("0001-opened\n")
        (root / "docs/use.md").write_text("[glossary](glossary.md)\nlet glossary = load();\n")
    sealed(workspace, corpus)
    assert not (workspace / "docs/glossary.md").exists()
    assert len((workspace / "docs/use.md").read_text().splitlines()) == 2
    guard(workspace, corpus)


def test_a_generic_document_with_an_identifier_loses_the_lines_of_its_identifier_alone_d16(
    workspace: Path, corpus: Path
) -> None:
    for root in (workspace, corpus):
        (root / "docs/glossary.md").write_text("---\nid: HW-GLO-0001\n---\n0001-opened\n")
        (root / "docs/use.md").write_text("glossary.md\nHW-GLO-0001\n")
    sealed(workspace, corpus)
    assert (workspace / "docs/use.md").read_text() == "glossary.md\n"


def test_a_key_without_an_identifier_goes_by_its_file_name_d21(
    workspace: Path, corpus: Path
) -> None:
    for root in (workspace, corpus):
        (root / "docs/obligations/0198-session-budget.md").write_text("The answer.\n")
        (root / "docs/use.md").write_text("see 0198-session-budget\nother\n")
    sealed(workspace, corpus)
    assert (workspace / "docs/use.md").read_text() == "other\n"


def test_a_document_that_only_the_workspace_holds_goes_with_its_lines_too(
    workspace: Path, corpus: Path
) -> None:
    (workspace / "docs/obligations/0300-new.md").write_text(
        "---\nid: HW-OBL-0300\n---\n0001-opened"
    )
    (workspace / "docs/a.md").write_text("HW-OBL-0300\nkept\n")
    sealed(workspace, corpus)
    assert (workspace / "docs/a.md").read_text() == "kept\n"
    assert sealed(workspace, corpus).nothing


def test_strange_file_names_are_sealed_like_any_other(workspace: Path, corpus: Path) -> None:
    root = os.fsencode(workspace)
    os.mkdir(os.path.join(root, b"docs/PROBE-FIX-opened"))
    for name in (b"-rf \n", b"\xff\xfe", b"docs/PROBE-FIX-opened/x"):
        with open(os.path.join(root, name), "wb") as file:
            file.write(b"PROBE-FIX-opened")
    (workspace / "0001-opened.txt").write_text("nothing in it\n")
    (workspace / "link").symlink_to("docs/probes/0001-opened.md")
    sealed(workspace, corpus)
    assert not (workspace / "docs/PROBE-FIX-opened").exists()
    assert not any("opened" in name for name in names(workspace))
    assert not (workspace / "link").is_symlink()
    guard(workspace, corpus)


def test_a_hard_link_of_the_corpus_is_not_written_through(workspace: Path, corpus: Path) -> None:
    (workspace / "docs/spec/13.md").unlink()
    os.link(corpus / "docs/spec/13.md", workspace / "docs/spec/13.md")
    sealed(workspace, corpus)
    assert (corpus / "docs/spec/13.md").read_text() == FILES["docs/spec/13.md"]
    assert (workspace / "docs/spec/13.md").read_text() == "HW-OBL-0014 | open\n"


def test_the_instrument_behind_a_link_is_refused_and_nothing_outside_is_touched(
    workspace: Path, corpus: Path
) -> None:
    shutil.rmtree(workspace / "docs")
    (workspace / "docs").symlink_to(corpus / "docs")
    before = manifest_of(workspace)
    with pytest.raises(Refusal, match="through a link") as caught:
        sealed(workspace, corpus)
    assert caught.value.code == ExitCode.INSTRUMENT
    assert manifest_of(workspace) == before
    assert (corpus / "docs/probes/0001-opened.md").exists()
    assert refused(workspace, corpus).code == ExitCode.INSTRUMENT


def test_a_workspace_inside_the_corpus_is_not_sealed_d04(corpus: Path) -> None:
    with pytest.raises(Refusal) as caught:
        sealed(corpus / "docs", corpus)
    assert caught.value.code == ExitCode.PLACE


def test_usage_errors_are_two_d38(workspace: Path, corpus: Path, tmp_path: Path) -> None:
    for place, probes in ((tmp_path / "none", PROBES), (workspace, ("PROBE-FIX-none",))):
        with pytest.raises(Refusal) as caught:
            seal(place, probes, corpus, DECLARATION)
        assert caught.value.code == ExitCode.USAGE
    with pytest.raises(Refusal, match="at least one probe"):
        seal(workspace, (), corpus, DECLARATION)


def test_a_key_that_the_corpus_does_not_hold_is_refused(workspace: Path, corpus: Path) -> None:
    (corpus / "docs/obligations/0198-session-budget.md").unlink()
    with pytest.raises(Refusal, match="answer key") as caught:
        sealed(workspace, corpus)
    assert caught.value.code == ExitCode.INSTRUMENT


def test_a_file_that_cannot_be_read_stops_everything_c19_d24(
    workspace: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "zz-secret").write_text("x")
    real = os.open

    def closed(path: bytes | str, flags: int, mode: int = 0o777) -> int:
        if os.fsencode(path).endswith(b"zz-secret"):
            raise PermissionError(13, "Permission denied")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", closed)
    with pytest.raises(Refusal, match="zz-secret: cannot be read") as caught:
        sealed(workspace, corpus)
    assert caught.value.code == ExitCode.INSTRUMENT
    assert all((workspace / name).exists() for name in FILES)
    monkeypatch.setattr(os, "open", real)
    sealed(workspace, corpus)
    monkeypatch.setattr(os, "open", closed)
    assert refused(workspace, corpus).code == ExitCode.NAMED


# Section C: what the guards refuse, each over a sealed workspace with one thing put in.


@pytest.fixture
def clean(workspace: Path, corpus: Path) -> Path:
    sealed(workspace, corpus)
    guard(workspace, corpus)
    return workspace


@pytest.mark.parametrize("below", ["", "docs"])
def test_a_workspace_in_the_corpus_is_six_c01_c02(corpus: Path, below: str) -> None:
    refusal = refused(corpus / below, corpus)
    assert refusal.code == ExitCode.PLACE
    assert "moves the `tree` digest" in refusal.reasons[0]


def test_a_link_into_the_corpus_is_six(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(corpus)
    assert refused(tmp_path / "link", corpus).code == ExitCode.PLACE


def test_an_output_directory_in_the_corpus_or_at_home_is_six(clean: Path, corpus: Path) -> None:
    for out, home in ((corpus / "out", Path("/nowhere")), (clean.parent / "out", clean.parent)):
        with pytest.raises(Refusal) as caught:
            guard_workspace(
                clean, corpus=corpus, declaration=DECLARATION, probes=PROBES, out=out, home=home
            )
        assert caught.value.code == ExitCode.PLACE
    outside_home(Path("/var/tmp/x"), home=Path("/var/tm"))


@pytest.mark.parametrize("name", [".git", "docs/spec/.git"])
@pytest.mark.parametrize("folder", [False, True])
def test_a_git_file_or_folder_is_four_c03_c04(
    clean: Path, corpus: Path, name: str, folder: bool
) -> None:
    if folder:
        (clean / name).mkdir()
    else:
        (clean / name).write_text("gitdir: /somewhere\n")
    refusal = refused(clean, corpus)
    assert refusal.code == ExitCode.MOVED
    assert "live pointer into the history" in refusal.reasons[0]


def test_the_instrument_is_eight_and_wins_over_nine_c06_c08(clean: Path, corpus: Path) -> None:
    plant(clean, {"docs/probes/0001-opened.md": "PROBE-FIX-opened"})
    refusal = refused(clean, corpus)
    assert refusal.code == ExitCode.INSTRUMENT
    assert "docs/probes" in refusal.reasons[0]
    assert "recorder seal" in refusal.reasons[0]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("docs/notes/0001-x.md", "PROBE-FIX-opened", id="C09"),
        pytest.param("docs/notes/0013.md", "see 0001-opened.md", id="C11"),
        pytest.param("docs/evaluations/e.md", "0001-opened", id="C12"),
        pytest.param(".claude/skills/x.sh", "PROBE-FIX-opened", id="C14"),
        pytest.param(".headwater/answers.yml", "PROBE-FIX-opened: yes", id="C16"),
        pytest.param("binary", "\0\1PROBE-FIX-opened\0", id="D23"),
        pytest.param("docs/obligations/0198-session-budget.md", "any text", id="C20-document"),
        pytest.param("docs/register.md", "HW-OBL-0198 | a", id="C20-line"),
        pytest.param("docs/spec/15.md", "HW-OBL-0013", id="C22"),
        pytest.param(".headwater/nav.yml", "HW-OBL-0013", id="a-fold-naming-a-document"),
        pytest.param("0001-opened.bak", "", id="a-file-name"),
    ],
)
def test_a_file_that_names_the_probe_is_nine_and_named_and_without_it_the_guards_pass_c10(
    clean: Path, corpus: Path, name: str, content: str
) -> None:
    plant(clean, {name: content})
    refusal = refused(clean, corpus)
    assert refusal.code == ExitCode.NAMED
    assert len(refusal.reasons) == 1
    assert name in refusal.reasons[0]
    (clean / name).unlink()
    guard(clean, corpus)


def test_declared_folds_may_name_the_probe_c13(clean: Path, corpus: Path) -> None:
    plant(clean, {".headwater/nav.yml": "PROBE-FIX-opened\n0002-keyed.md\n"})
    guard(clean, corpus)


def test_without_declared_folds_every_file_that_names_the_probe_is_refused_d29(
    clean: Path, corpus: Path
) -> None:
    bare = parse_declaration("\n".join(line for line in TEXT.split("\n") if "folds:" not in line))
    with pytest.raises(Refusal) as caught:
        guard(clean, corpus, declaration=bare)
    assert caught.value.code == ExitCode.NAMED


def test_names_are_read_from_the_corpus_and_never_from_the_workspace_c27(
    clean: Path, corpus: Path
) -> None:
    plant(clean, {"docs/spec/16.md": "HW-OBL-0013"})
    assert refused(clean, corpus).code == ExitCode.NAMED
    assert [item.title for item in secrets_of(corpus, DECLARATION, PROBES).documents] == [
        "README",
        "HW-OBL-0013",
        "HW-OBL-0198",
    ]


WORDS = st.sampled_from(
    [
        "PROBE-FIX-opened",
        "0001-opened.md",
        "PROBE-FIX-keyed",
        "HW-OBL-0013",
        "0198-session-budget.md",
        "HW-OBL-0014",
        "PROBE\\u002dFIX-opened",
        "\\nHW-OBL-0198",
        "text",
        "[",
        '"',
        "\n",
    ]
)
TREE = st.dictionaries(
    st.sampled_from(
        [
            "docs/a.md",
            "docs/b/0020-b.md",
            "docs/b/README.md",
            "tools/x.json",
            ".headwater/nav.yml",
            ".headwater/corpus.json",
            "docs/runs/z.md",
            "CLAUDE.md",
        ]
    ),
    st.lists(WORDS, max_size=6).map(" ".join)
    | st.lists(WORDS, max_size=5).map(json.dumps)
    | st.lists(WORDS, max_size=3).map(lambda words: "---\nid: HW-X-0001\n---\n" + " ".join(words)),
    max_size=5,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(TREE)
def test_a_sealed_tree_passes_the_guards_and_sealing_it_again_changes_nothing(
    corpus: Path, tmp_path: Path, extra: dict[str, str]
) -> None:
    workspace = tmp_path / "again"
    shutil.rmtree(workspace, ignore_errors=True)
    shutil.copytree(corpus, workspace)
    plant(workspace, extra)
    sealed(workspace, corpus)
    guard(workspace, corpus)
    before = manifest_of(workspace)
    assert sealed(workspace, corpus).nothing
    assert manifest_of(workspace) == before


def test_each_file_of_a_workspace_is_read_once(
    workspace: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = "---\nid: HW-NEW-0001\n---\n0001-opened"
    plant(workspace, {"docs/obligations/0300-new.md": fresh, "docs/a.md": "HW-NEW-0001\nx\n"})
    read: list[bytes] = []
    blocks = recorder.workspace.seal.read_blocks

    def counted(path: bytes) -> Iterator[bytes]:
        if path.startswith(os.fsencode(workspace)):
            read.append(path)
        return blocks(path)

    monkeypatch.setattr(recorder.workspace.seal, "read_blocks", counted)
    sealed(workspace, corpus)
    assert len(read) == len(set(read)) > 10
    assert (workspace / "docs/a.md").read_text() == "x\n"


def test_twenty_thousand_files_are_sealed_for_twenty_five_probes_within_three_seconds(
    tmp_path: Path,
) -> None:
    corpus, workspace = tmp_path / "corpus", tmp_path / "workspace"
    plant(corpus, {".headwater/probe.yml": TEXT})
    probes = [f"PROBE-FIX-number-{number}" for number in range(25)]
    for number, identifier in enumerate(probes):
        plant(corpus, {f"docs/probes/{number:04}-a-probe.md": probe(identifier)})
        record = f"---\nid: HW-OBL-{number:04}\n---\n{identifier}"
        plant(corpus, {f"docs/records/{number:04}-of-it.md": record})
    shutil.copytree(corpus, workspace)
    text = "Some words of prose that name nothing at all, HW-DR-0001 apart.\n" * 30
    for number in range(20_000):
        folder = workspace / f"src/{number % 100}"
        if number < 100:
            folder.mkdir(parents=True)
        (folder / f"{number}.txt").write_text(text)
    bare = parse_declaration(TEXT.replace("PROBE-FIX-keyed:", "PROBE-FIX-other:"))
    started = time.process_time()
    sealing = seal(workspace, probes, corpus, bare)
    assert time.process_time() - started < 3
    assert len(sealing.documents) == 25
