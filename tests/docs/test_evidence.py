"""A newcomer verifies a batch with public tools and ``docs/evidence.md`` alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from recorder.evidence.signing import key_id, read_public
from recorder.evidence.verification import SIGNER
from tests.docs.blocks import blocks_of, run_block
from tests.evidence_signing.conftest import copy, signed, signing_key

__all__ = ["copy", "signed", "signing_key"]

pytestmark = pytest.mark.engine

SIGNATURE, KEY, FILES, LOGS, LEDGER, RUN, CALL = range(7)


def ran(project: Path, number: int, batch: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "BATCH": str(batch), "HOME": "/nonexistent"}
    return run_block(project, blocks_of(project / "docs" / "evidence.md")[number], environment)


def test_every_command_says_that_an_untouched_batch_is_whole(project: Path, signed: Path) -> None:
    said = [ran(project, number, signed) for number in range(7)]
    assert [(each.returncode, each.stderr) for each in said] == [(0, "")] * 7
    assert "Signature Verified Successfully" in said[SIGNATURE].stdout
    own = key_id(read_public((signed / SIGNER).read_bytes()))
    assert f"sha256:{said[KEY].stdout.split()[0]}" == own
    assert [said[number].stdout for number in (FILES, LOGS, LEDGER, CALL)] == [""] * 4
    assert "none runc 1 sessions: /opt/harness/claude" in said[RUN].stdout
    assert "refused connect-host mirror.recorder.test" in said[RUN].stdout


@pytest.mark.parametrize(
    ("number", "name", "old", "new"),
    [
        (SIGNATURE, "evidence/statement.json", b'"payload": "eyJ', b'"payload": "eyK'),
        (FILES, "sessions/L1-campaign-present-p1-r1/stderr.log", b"", b"x"),
        (FILES, "batch.json", b'"seed": ', b'"seed": 1'),
        (LEDGER, "ledger.jsonl", b'"slot":0', b'"slot":1'),
        (LEDGER, "sessions/L1-campaign-present-p1-r1/stderr.log", b"", b"x"),
        (
            LOGS,
            "sessions/L1-campaign-present-p1-r1/egress.jsonl",
            b'"rule":"path"',
            b'"rule":"host"',
        ),
    ],
)
def test_a_change_shows(
    project: Path, copy: Callable[[], Path], number: int, name: str, old: bytes, new: bytes
) -> None:
    batch = copy()
    path = batch / name
    path.write_bytes(path.read_bytes().replace(old, new, 1) if old else new)
    said = ran(project, number, batch)
    assert said.returncode != 0 or said.stdout


def test_a_file_that_was_added_shows(project: Path, copy: Callable[[], Path]) -> None:
    batch = copy()
    shutil.copy(batch / "batch.json", batch / "more.json")
    said = ran(project, FILES, batch)
    assert said.returncode != 0
    assert "> more.json" in said.stdout


def test_a_log_that_was_cut_shows(project: Path, copy: Callable[[], Path]) -> None:
    batch = copy()
    path = batch / "sessions" / "L1-campaign-present-p1-r1" / "egress.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert ran(project, LOGS, batch).stdout.endswith("egress.jsonl: cut\n")
