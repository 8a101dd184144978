"""What somebody put into a batch ends no verb with a traceback, a wait or a terminal's escape."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from recorder.cli.app import app
from recorder.evidence.signing_batch import sign_batch
from recorder.evidence.verification import STATEMENT, verify_batch
from recorder.ledger.chain import FAULTS, read
from recorder.plain_file import LARGEST
from recorder.refusal import Refusal

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120)]

Copy = Callable[[], Path]
ONE = "L1-campaign-present-p1-r1"
DEEP = b'{"a":' * 100_000

VERBS = (
    ("verify", "{}"),
    ("show", "{}"),
    ("show", f"{{}}/sessions/{ONE}"),
    ("report", "--compare", "{}:present", "{}:absent", "--json"),
    ("batch", "status", "{}"),
    ("batch", "assemble", "{}", "--out", "-"),
    ("audit", "show", "{}"),
    ("export", "{}", "--to", "junit"),
    ("judge", "{}", "-d", "{}.yaml"),
)
DISCIPLINES = """
disciplines:
  - id: one
    declare:
      mechanism: naming
      scope: { source: target.path }
      extract: { hits: [{ op: source, of: target.path }] }
      relate: [{ id: none, relation: { op: empty, of: hits }, message: '{value}' }]
"""


def judged_by(directory: Path) -> None:
    directory.with_name(f"{directory.name}.yaml").write_text(DISCIPLINES)


def outcomes(directory: Path) -> dict[str, BaseException | None]:
    """What each verb ended with, by its words: a refusal, an error of a file, or nothing."""
    judged_by(directory)
    found = {}
    for words in VERBS:
        ran = CliRunner().invoke(app, [word.format(directory) for word in words])
        found[" ".join(words)] = ran.exception
    return found


def fault_of(directory: Path) -> str:
    return "\n".join(map(str, verify_batch(directory).faults))


FILES = (
    "batch.json",
    "ledger.jsonl",
    "evidence/construction.json",
    "arms/L1-campaign-present.manifest",
    "plans/L1-campaign-present.txt",
    f"sessions/{ONE}/evidence.json",
    f"sessions/{ONE}/raw.jsonl",
    f"sessions/{ONE}/egress.jsonl",
    f"sessions/{ONE}/record.md",
    "disciplines.json",
)


@pytest.mark.parametrize(
    ("name", "put"),
    [
        *((name, "fifo") for name in FILES),
        *((name, "deep") for name in FILES if name.endswith((".json", ".jsonl"))),
        *((name, put) for name in ("batch.json", FILES[6]) for put in ("link", "large")),
    ],
)
def test_no_verb_raises_or_waits(copy: Copy, name: str, put: str) -> None:
    directory = copy()
    path = directory / name
    path.unlink(missing_ok=True)
    if put == "fifo":
        os.mkfifo(path)
    elif put == "link":
        path.symlink_to("/dev/zero")
    elif put == "deep":
        path.write_bytes(DEEP)
    else:
        path.touch()
        os.truncate(path, LARGEST + 1)
    assert name in fault_of(directory)
    for words, ended in outcomes(directory).items():
        assert ended is None or isinstance(ended, (Refusal, OSError, SystemExit)), (words, ended)
        assert not isinstance(ended, OSError) or ended.filename, (words, ended)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda batch: batch["lines"][0].update(repetitions=10**12), "order: names"),
        (lambda batch: batch["lines"][0].update(repetitions=-1), "order: names"),
        (lambda batch: batch["lines"][0].update(identifiers="(a+)+$"), "lines[0].identifiers"),
        (lambda batch: batch["lines"][0].update(identifiers="["), "lines[0].identifiers"),
    ],
)
def test_a_number_of_sessions_and_a_pattern_are_looked_at_before_they_are_used(
    copy: Copy, change: Callable[[dict[str, Any]], None], says: str
) -> None:
    directory = copy()
    path = directory / "batch.json"
    batch = json.loads(path.read_text())
    change(batch)
    path.write_text(json.dumps(batch, indent=2) + "\n")
    assert f"batch.json: {says}" in fault_of(directory)
    for words, ended in outcomes(directory).items():
        assert ended is None or isinstance(ended, (Refusal, SystemExit)), (words, ended)


@pytest.mark.parametrize("host", [5, [1], {"Binds": 5}])
def test_inspect_output_of_another_form_is_a_fault(copy: Copy, host: object) -> None:
    directory = copy()
    path = directory / "sessions" / ONE / "evidence.json"
    evidence = json.loads(path.read_text())
    evidence["session_container"]["HostConfig"] = host
    path.write_text(json.dumps(evidence, indent=2) + "\n")
    assert "session_container.HostConfig: is not what an engine says" in fault_of(directory)


def test_a_document_that_is_read_and_too_deep_to_be_walked_is_a_fault(copy: Copy) -> None:
    directory = copy()
    path = directory / "sessions" / ONE / "evidence.json"
    whole = path.read_text()
    for depth in range(700, 1000, 5):
        deep = '"session_container": {"x": ' + "[" * depth + "]" * depth + ", "
        path.write_text(whole.replace('"session_container": {', deep, 1))
        assert f"sessions/{ONE}/evidence.json" in fault_of(directory)


def test_a_ledger_of_newlines_has_an_end_of_faults() -> None:
    reading = read(b"\n" * (1 << 20))
    assert len(reading.faults) == FAULTS + 2
    assert str(reading.faults[-1]).endswith("is not read, nor is any after it")


def test_what_is_said_of_a_batch_moves_no_cursor(copy: Copy) -> None:
    directory = copy()
    path = directory / "batch.json"
    batch = json.loads(path.read_text())
    batch["recorder"] = "1\x1b]0;title\x07\nsigned: all is well"
    path.write_text(json.dumps(batch, indent=2) + "\n")
    (directory / "sessions" / "\x1b[2J\nrecorder: well").write_text("")
    ran = CliRunner().invoke(app, ["verify", str(directory)])
    assert "\x1b" not in ran.output
    assert not [line for line in ran.output.splitlines() if line.startswith("signed: all is well")]
    assert isinstance(ran.exception, Refusal)


def test_what_does_not_verify_is_refused_before_it_is_stated(
    copy: Copy, signing_key: Ed25519PrivateKey
) -> None:
    """Stating it reads its files again, and those need not be what they should be."""
    directory = copy()
    path = directory / "sessions" / ONE / "evidence.json"
    path.write_bytes(DEEP)
    with pytest.raises(Refusal) as refused:
        sign_batch(directory, signing_key)
    assert any("nested too deep" in reason for reason in refused.value.reasons)
    assert not (directory / STATEMENT).exists()
