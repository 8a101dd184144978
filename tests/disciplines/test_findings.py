"""Disciplines as the check behind findings: declared, recorded, transformed, verified."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import UNSET

from recorder.batch.dry_run import dry_run
from recorder.batch.line import lay_line
from recorder.batch.recording import Line
from recorder.batch.spec import LineSpec, read_spec
from recorder.disciplines.artifacts import (
    Artifact,
    artifact_findings,
    artifacts_of,
    findings_record,
    other_files,
)
from recorder.disciplines.loading import load_disciplines
from recorder.disciplines.replay import Tree
from recorder.disciplines.sessions import BatchVerdicts, judge_batch, log_of
from recorder.disciplines.values import UNPROVEN
from recorder.evidence.signing_batch import sign_batch
from recorder.evidence.verification import Verification, verify_batch
from recorder.refusal import ExitCode, Refusal
from recorder.transform.produced import ProducedFile
from recorder.workspace.manifest import digest_of
from tests.disciplines.made import entry, rules
from tests.recording.rig import EXAMPLES, recorder

RULES = """
disciplines:
  - id: report-cites-what-is-in-force
    why: a superseded decision is no ruling.
    declare:
      mechanism: added-only
      scope: {source: target.path, include: ['^reports/']}
      supply: {pre: empty, post: empty}
      extract:
        before:
          - {op: source, of: pre}
          - {op: lines}
          - {op: keyByPattern, re: '(SLU-DEC-0002)'}
        after:
          - {op: source, of: post}
          - {op: lines}
          - {op: keyByPattern, re: '(SLU-DEC-0002)'}
        added:
          - {op: onlyIn, of: after, notIn: before}
      relate:
        - {id: none, relation: {op: empty, of: added}, message: 'adds {key}'}
  - id: never-by-a-call
    declare:
      mechanism: forbidden-command
      scope: {source: command}
      extract: {it: [{op: source, of: command}]}
      relate: [{id: none, relation: {op: empty, of: it}, message: '{value}'}]
"""
FILE = ".headwater/disciplines.yaml"
RULE = "report-cites-what-is-in-force"


def declared(directory: Path) -> Path:
    """The example corpus with disciplines in the place of its check, hidden from its sessions."""
    corpus = directory / "corpus"
    shutil.copytree(EXAMPLES / "corpus", corpus)
    path = corpus / ".headwater" / "probe.yml"
    kept = [line for line in path.read_text().splitlines() if not line.startswith("check:")]
    text = "\n".join([*kept, f"disciplines: {FILE}", ""])
    marked = "  - .headwater/probe.yml\n"
    assert marked in text
    path.write_text(text.replace(marked, f"{marked}  - {FILE}\n"))
    (corpus / FILE).write_text(RULES)
    return corpus


def batch_of(corpus: Path) -> Path:
    """A batch of the one probe that produces something, once in each arm."""
    written = yaml.safe_load((EXAMPLES / "batch.yaml").read_text())
    others = ["PROBE-EX-units", "PROBE-EX-outside"]
    lines = [{**line, "repetitions": 1, "exclude": others} for line in written["lines"]]
    changes = {"corpus": str(corpus), "rehearse": str(EXAMPLES / "rehearsal.yaml"), "lines": lines}
    path = corpus.parent / "batch.yaml"
    path.write_text(yaml.safe_dump({**written, **changes}))
    return path


def laid(corpus: Path, tree: Path, arm: str = "present") -> Line:
    return lay_line(corpus, LineSpec(tier="campaign", arm=arm), tree).line


def test_the_file_is_the_corpus_s_own_in_every_arm(tmp_path: Path) -> None:
    corpus = declared(tmp_path)
    for arm in ("present", "absent"):
        line = laid(corpus, tmp_path / arm, arm)
        assert line.disciplines is not None
        assert line.disciplines.digest == digest_of(RULES.encode())
        assert line.disciplines.name == FILE
        assert line.check is None
        assert not (line.tree / FILE).exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "disciplines.yaml: cannot be read"),
        ("disciplines: [", "disciplines.yaml:2:1"),
        (RULES.replace("op: empty", "op: emtpy", 1), "disciplines.yaml:21:"),
        (
            "disciplines:\n  - id: never" + RULES.partition("  - id: never")[2],
            "no entry of it judges an artifact",
        ),
    ],
    ids=["missing", "not-yaml", "a-wrong-relation", "none-of-an-artifact"],
)
def test_a_broken_file_is_refused_before_anything_is_spent(
    tmp_path: Path, text: str | None, says: str
) -> None:
    corpus = declared(tmp_path)
    (corpus / FILE).unlink()
    if text is not None:
        (corpus / FILE).write_text(text)
    with pytest.raises(Refusal, match=says) as refused:
        laid(corpus, tmp_path / "tree")
    assert refused.value.code == ExitCode.INSTRUMENT
    with pytest.raises(Refusal, match=says) as refused:
        dry_run(read_spec(batch_of(corpus)), corpus, tmp_path / "work")
    assert refused.value.code == ExitCode.INSTRUMENT


def test_a_file_that_ended_as_it_began_is_judged_and_one_of_no_text_is_not() -> None:
    baseline = Tree({"same": digest_of(b"bad"), "other": digest_of(b"x")}, {"same": b"bad"}.get)
    files = [
        ProducedFile("same", digest_of(b"bad"), ()),
        ProducedFile("lost", digest_of(b"y"), ()),
        ProducedFile("\udcff", digest_of(b"bad"), ()),
    ]
    artifacts = artifacts_of(files, baseline, lambda _: None)
    assert artifacts == (
        Artifact("same", "bad", "bad"),
        Artifact("lost", artifacts[1].pre, UNPROVEN),
    )
    post = {"it": [{"op": "source", "of": "post"}, {"op": "matches", "re": "bad"}]}
    judged = load_disciplines(rules(entry("no-bad", post)), "r")
    found = artifact_findings(judged, artifacts, other_files(baseline))
    assert found.broken == {"same": ("no-bad",)}
    assert found.not_judged == {"lost"}
    record = findings_record(judged, found)
    assert (record.judged, record.findings, record.not_judged) == (1, 1, ("lost",))
    assert findings_record(judged, None).judged is None


def test_another_file_that_may_have_changed_is_not_known() -> None:
    baseline = Tree({"a": digest_of(b"x"), "b": digest_of(b"y")}, {"a": b"x", "b": b"y"}.get)
    read = other_files(baseline, removed=["b"], unknown=["a"])
    assert read("a") is UNPROVEN
    assert read("b") is read("nowhere")


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A batch with the real harness, its corpus beside it. Nobody may change it: take a copy."""
    directory = tmp_path_factory.mktemp("findings")
    spec = batch_of(declared(directory))
    ran = recorder("batch", "run", spec, "--out", directory / "out")
    assert ran.code == 0, ran.err
    return directory / "out"


SESSIONS: dict[str, list[str]] = {
    "L1-campaign-present-p1-r1": [],
    "L2-campaign-absent-p1-r1": [RULE],
}


@pytest.mark.engine
def test_a_recorded_artifact_carries_the_entries_that_it_breaks(batch: Path) -> None:
    pinned = json.loads((batch / "batch.json").read_bytes())
    digest = digest_of(RULES.encode())
    assert [line["disciplines"] for line in pinned["lines"]] == [digest, digest]
    for name, findings in SESSIONS.items():
        (event,) = yaml.safe_load((batch / "sessions" / name / "event.yaml").read_text())
        assert {a["path"]: a["findings"] for a in event["produced"]} == {
            "reports/summary.md": findings
        }
        evidence = json.loads((batch / "sessions" / name / "evidence.json").read_bytes())
        assert evidence["check"] is None
        assert evidence["disciplines"] == {
            "file": FILE,
            "digest": digest,
            "entries": [RULE],
            "judged": 1,
            "not_judged": [],
            "findings": len(findings),
        }
        record = (batch / "sessions" / name / "record.md").read_text()
        assert f"Findings are the entries of `{FILE}` (`{digest}`)" in record
        assert "declares no check" not in record
    found = verify_batch(batch)
    assert found.faults == ()
    assert any(line.startswith("not known: findings") for line in found.said())


@pytest.mark.engine
def test_the_transform_finds_the_same_in_what_was_kept(batch: Path, tmp_path: Path) -> None:
    corpus = batch.parent / "corpus"
    for name in SESSIONS:
        arm = name.split("-")[2]
        tree, workspace = tmp_path / arm, tmp_path / f"{arm}-left"
        assert recorder("arm", "campaign", arm, "--corpus", corpus, "--out", tree).code == 0
        assert recorder("seal", tree, "PROBE-EX-report", "--corpus", corpus).code == 0
        shutil.copytree(tree, workspace, symlinks=True)
        (event,) = yaml.safe_load((batch / "sessions" / name / "event.yaml").read_text())
        (artifact,) = event["produced"]
        kept = batch / "sessions" / name / "produced" / artifact["result"].removeprefix("sha256:")
        (workspace / "reports").mkdir()
        (workspace / artifact["path"]).write_bytes(kept.read_bytes())

        def made(*more: str | Path, name: str = name, workspace: Path = workspace) -> Any:
            return recorder(
                *("transform", "--probe", "PROBE-EX-report", "--session", name, "--corpus", corpus),
                *("--workspace", workspace, "--produced", "reports/summary.md", *more),
                stdin=(batch / "sessions" / name / "raw.jsonl").read_bytes(),
            )

        ran = made("--disciplines", corpus / FILE, "--baseline", tree)
        assert ran.code == 0, ran.err
        assert ran.out.encode() == (batch / "sessions" / name / "event.yaml").read_bytes()
        # Without the tree before, the entry that reads it cannot say, and there is no list.
        (bare,) = yaml.safe_load(made("--disciplines", corpus / FILE).out)
        assert "findings" not in bare["produced"][0]
    ran = recorder("transform", "--probe", "P", "--session", "s", "--disciplines", corpus / FILE)
    assert ran.code == 2
    assert "--disciplines: needs --workspace" in ran.err


@pytest.mark.engine
def test_a_file_that_moved_is_named_and_one_that_is_not_pinned_is_a_fault(
    batch: Path, tmp_path: Path
) -> None:
    rules_file = batch.parent / "corpus" / FILE
    rules_file.write_text(RULES.replace("is no ruling", "rules nothing"))
    try:
        ran = recorder("batch", "run", batch.parent / "batch.yaml", "--out", batch)
    finally:
        rules_file.write_text(RULES)
    assert ran.code == 4
    assert "disciplines of line 1 (campaign present) moved" in ran.err
    copy = tmp_path / "out"
    shutil.copytree(batch, copy)
    text = (copy / "batch.json").read_text()
    (copy / "batch.json").write_text(text.replace(digest_of(RULES.encode()), digest_of(b"")))
    found = {(fault.file, fault.member) for fault in verify_batch(copy).faults}
    assert {(f"sessions/{name}/evidence.json", "disciplines.digest") for name in SESSIONS} <= found


def test_a_command_s_findings_and_the_entries_are_one_list() -> None:
    post = {"it": [{"op": "source", "of": "post"}, {"op": "matches", "re": "bad"}]}
    judged = load_disciplines(rules(entry("no-bad", post)), "r")
    found = artifact_findings(judged, [Artifact("a", "x", "bad"), Artifact("b", "x", UNPROVEN)])
    reported = ProducedFile("a", "sha256:x", (), ("a-command",))
    assert found.attach(reported).findings == ("a-command", "no-bad")
    assert found.attach(ProducedFile("b", "sha256:y", (), ("a-command",))).findings is UNSET


@pytest.fixture(scope="module")
def signed_and_judged(batch: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the batch, judged after it was signed."""
    directory = tmp_path_factory.mktemp("judged")
    copy = directory / "out"
    shutil.copytree(batch, copy)
    sign_batch(copy, Ed25519PrivateKey.generate())
    (directory / "rules.yaml").write_text(RULES)
    ran = recorder("judge", copy, "-d", directory / "rules.yaml", "--corpus", EXAMPLES / "corpus")
    assert ran.code == 0, ran.err
    return copy


@pytest.fixture
def judged(signed_and_judged: Path, tmp_path: Path) -> Path:
    shutil.copytree(signed_and_judged, tmp_path / "out")
    return tmp_path / "out"


def again(directory: Path, text: str = RULES) -> Verification:
    """Verified and judged again, as ``recorder verify -d FILE --corpus DIR`` does."""
    loaded = load_disciplines(text.encode(), "rules.yaml")
    fresh = judge_batch(directory, loaded, [EXAMPLES / "corpus"])
    return verify_batch(directory, judged=fresh)


@pytest.mark.engine
def test_verdicts_may_come_after_the_signature_and_are_judged_again(judged: Path) -> None:
    log = (judged / "disciplines.log").read_text()
    (row,) = [line for line in log.splitlines() if "\tadvised\t" in line and RULE in line]
    assert "L2-campaign-absent-p1-r1:reports/summary.md" in row
    digest = digest_of(RULES.encode())
    ran = recorder("verify", judged)
    assert (ran.code, ran.err) == (0, "")
    assert "signed: " in ran.out
    assert f"not verified: disciplines.json is what {digest}" in ran.out
    (judged.parent / "rules.yaml").write_text(RULES)
    more = ("-d", judged.parent / "rules.yaml", "--corpus", EXAMPLES / "corpus")
    ran = recorder("verify", judged, *more)
    assert (ran.code, ran.err) == (0, "")
    assert f"judged again by {digest}: the same" in ran.out


@pytest.mark.engine
@pytest.mark.parametrize(
    ("name", "before", "after", "alone"),
    [
        ("disciplines.log", "\tadvised\t", "\tpassed\t", True),
        ("disciplines.log", "\n", "\n\n", True),
        ("disciplines.log", None, "", True),
        ("disciplines.json", None, "", True),
        ("disciplines.json", None, "{}", True),
        ("disciplines.json", '"calls"', '"more": 1, "calls"', True),
        ("disciplines.json", "L2-campaign-absent-p1-r1", "L2-campaign-absent-p1-r2", True),
        ("disciplines.json", '"advised"', '"passed"', False),
        ("disciplines.json", '"arm": "absent"', '"arm": "present"', False),
        ("disciplines.json", '"call": 2', '"call": 1', False),
        ("disciplines.json.part", None, "x", True),
    ],
)
def test_a_verdict_that_was_changed_is_found(
    judged: Path, name: str, before: str | None, after: str, alone: bool
) -> None:
    path = judged / name
    if before is not None:
        text = path.read_text()
        assert before in text
        path.write_text(text.replace(before, after))
    elif after:
        path.write_text(after)
    else:
        path.unlink()
    if not alone:
        # Whoever changes a verdict writes the log that belongs to it.
        read = msgspec.json.decode(path.read_bytes(), type=BatchVerdicts)
        (judged / "disciplines.log").write_text(log_of(read))
        assert verify_batch(judged).faults == ()
    found = verify_batch(judged) if alone else again(judged)
    assert {fault.file for fault in found.faults} <= {name, "disciplines.log"}
    assert found.faults


@pytest.mark.engine
def test_other_rules_are_named(judged: Path) -> None:
    (fault,) = again(judged, RULES.replace("0002", "0003")).faults
    assert (fault.file, fault.member) == ("disciplines.json", "digest")
