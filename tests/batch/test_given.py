"""The files that a batch file names beside its corpus, and the corpus that it pins."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from proxy.policy import shipped
from recorder.batch.batch import require_model
from recorder.batch.given import given_of, require_pin
from recorder.batch.runner import Images
from recorder.batch.spec import read_spec
from recorder.refusal import ExitCode, Refusal
from tests.batch.null_host import IMAGES, Batch, NullHost, spec_of
from tests.recording.rig import EXAMPLES

TREE = "sha256:" + "1" * 64
PRICES = """
schema: recorder-prices/1
date: "2031-01-01"
models:
  claude-sonnet-4-5: {input: 1000, output: 2000}
"""


def refused(code: ExitCode, says: str, call: Callable[[], object]) -> None:
    with pytest.raises(Refusal, match=says) as caught:
        call()
    assert caught.value.code == code


@pytest.fixture
def spec_path(tmp_path: Path) -> Path:
    path = tmp_path / "batch.yaml"
    path.write_text(
        "corpus: corpus\nmodel: claude-sonnet-4-5\npolicy: policy.yaml\nprices: prices.yaml\n"
        "lines: [{tier: campaign, arm: present}]\n"
    )
    (tmp_path / "policy.yaml").write_text(shipped("anthropic"))
    (tmp_path / "prices.yaml").write_text(PRICES)
    return path


def test_a_policy_and_prices_are_beside_the_batch_file(spec_path: Path) -> None:
    given = given_of(read_spec(spec_path))
    assert given.policy_text == shipped("anthropic")
    assert given.prices.date == "2031-01-01"
    assert given.own_prices == given.prices


def test_what_is_shipped_stands_where_none_is_named(tmp_path: Path) -> None:
    given = given_of(spec_of(tmp_path))
    assert (given.policy_text, given.own_prices) == (None, None)
    assert given.policy.hosts == {"api.anthropic.com"}


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("policy.yaml", None, "No such file or directory: name an egress policy"),
        ("policy.yaml", "schema: other\n", "policy.yaml, line 1, column 1"),
        ("prices.yaml", None, "name a price table"),
        ("prices.yaml", "schema: x\ndate: d\nmodels: {}\n", "schema is x"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_place(
    spec_path: Path, name: str, text: str | None, says: str
) -> None:
    path = spec_path.with_name(name)
    path.unlink()
    if text is not None:
        path.write_text(text)
    refused(ExitCode.USAGE, says, lambda: given_of(read_spec(spec_path)))


def test_a_policy_lets_a_session_reach_no_other_host(spec_path: Path) -> None:
    path = spec_path.with_name("policy.yaml")
    path.write_text(path.read_text().replace("api.anthropic.com", "api.other.test"))
    refused(ExitCode.USAGE, "no other host", lambda: given_of(read_spec(spec_path)))


def test_a_model_is_held_against_the_policy_that_is_named(spec_path: Path) -> None:
    path = spec_path.with_name("policy.yaml")
    assert "claude-*" in path.read_text() or "claude-" in path.read_text()
    policy = given_of(read_spec(spec_path)).policy
    require_model("claude-sonnet-4-5", "model", policy)
    refused(ExitCode.USAGE, "no such model", lambda: require_model("gpt-6", "model", policy))


def git(corpus: Path, *words: str) -> str:
    name = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
    ran = subprocess.run(
        ["git", "-C", str(corpus), *name, *words], check=True, capture_output=True, text=True
    )
    return ran.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A corpus that is a directory of a repository, committed."""
    root = tmp_path / "repository"
    shutil.copytree(EXAMPLES / "corpus", root / "corpus")
    git(tmp_path, "init", "-q", str(root))
    git(root, "add", ".")
    git(root, "commit", "-qm", "one")
    return root / "corpus"


def test_a_pin_is_the_commit_with_nothing_changed_q22(repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    require_pin(head, repository, TREE)
    (repository.parent / "elsewhere").touch()
    require_pin(head, repository, TREE)
    (repository / "untracked").touch()
    refused(ExitCode.MOVED, r"\?\? .*untracked", lambda: require_pin(head, repository, TREE))
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "two")
    refused(ExitCode.MOVED, f"pin names {head}", lambda: require_pin(head, repository, TREE))


def test_a_pin_of_a_commit_needs_a_repository(tmp_path: Path) -> None:
    refused(ExitCode.MOVED, "git says", lambda: require_pin("a" * 40, tmp_path, TREE))


def test_a_pin_is_the_digest_of_the_tree(tmp_path: Path) -> None:
    require_pin(TREE, tmp_path, TREE)
    require_pin(None, tmp_path, TREE)
    other = TREE.replace("1", "2")
    refused(ExitCode.MOVED, "put it back", lambda: require_pin(other, tmp_path, TREE))


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    shutil.copytree(EXAMPLES / "corpus", tmp_path / "corpus")
    return Batch(tmp_path / "corpus", tmp_path / "out", spec_of(tmp_path / "corpus"))


class OtherHost(NullHost):
    def images(self) -> Images:
        return structs_replace(IMAGES, "2.9.9")


def structs_replace(images: Images, harness: str) -> Images:
    return Images(images.session, images.sidecar, harness)


def test_a_batch_pins_its_corpus_policy_prices_and_harness(batch: Batch) -> None:
    batch.run(max_sessions=1)
    pinned = json.loads((batch.out / "batch.json").read_bytes())
    assert pinned["harness_version"] == IMAGES.harness
    assert pinned["policy"].startswith("sha256:")
    assert pinned["prices"] is None
    assert pinned["lines"][0]["max_turns"] is not None
    spec = structs.replace(batch.spec, pin=pinned["lines"][0]["tree"])
    assert Batch(batch.corpus, batch.out, spec).run().standing.code == 0
    wrong = structs.replace(batch.spec, pin="sha256:" + "0" * 64)
    refused(ExitCode.MOVED, "its tree is", Batch(batch.corpus, batch.out, wrong).run)


def test_another_harness_is_refused_and_the_recorded_one_named_o25_o26(batch: Batch) -> None:
    batch.run(max_sessions=1)
    other = OtherHost(batch.provider)
    refused(
        ExitCode.MOVED,
        r"harness_version moved .*\(it was .*, and is 2.9.9\)",
        lambda: batch.run(other),
    )
    assert len(batch.effects) == 1


def test_a_harness_that_the_batch_file_names_is_the_image_s(batch: Batch) -> None:
    spec = structs.replace(batch.spec, harness="2.1.332")
    this = Batch(batch.corpus, batch.out, spec)
    refused(
        ExitCode.MOVED,
        "harness 2.1.332: the session image holds Claude Code 2.9.9",
        lambda: this.run(OtherHost(batch.provider)),
    )
    assert not (batch.out / "ledger.jsonl").exists()


def test_a_line_without_a_turn_cap_is_refused_before_its_tree_is_laid_o08(batch: Batch) -> None:
    path = batch.corpus / ".headwater" / "probe.yml"
    lines = [line for line in path.read_text().splitlines() if "max_turns" not in line]
    path.write_text("\n".join(lines) + "\n")
    refused(ExitCode.USAGE, "declares no `max_turns`", batch.run)
    assert not (batch.out / "arms").exists()
    spec = structs.replace(batch.spec, max_turns=9)
    report = Batch(batch.corpus, batch.out, spec).run()
    assert report.standing.code == 0
    assert report.totals.recorded == 3
