"""A ledger that somebody wrote again, its chain whole: the files do not bear it out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from recorder.evidence.verification import verify_batch
from recorder.ledger.chain import digest_of
from recorder.ledger.entries import START
from tests.evidence_signing.conftest import sign

pytestmark = pytest.mark.engine

Copy = Callable[[], Path]
ONE = "L1-campaign-present-p1-r1"


def write_again(directory: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change the lines and chain them anew, as whoever may write the directory can."""
    path = directory / "ledger.jsonl"
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    change(lines)
    previous, written = START, b""
    for number, line in enumerate(lines, start=1):
        text = json.dumps(
            {**line, "sequence": number, "previous": previous},
            ensure_ascii=False,
            separators=(",", ":"),
        ).encode()
        previous = digest_of(text)
        written += text + b"\n"
    path.write_bytes(written)


def of(lines: list[dict[str, Any]], kind: str, session: str = ONE) -> dict[str, Any]:
    return next(line for line in lines if line["kind"] == kind and line.get("session") == session)


def member(kind: str, name: str, value: object) -> Callable[[list[dict[str, Any]]], None]:
    def change(lines: list[dict[str, Any]]) -> None:
        of(lines, kind)[name] = value

    return change


def totals(lines: list[dict[str, Any]]) -> None:
    lines[-1]["totals"]["usd"] = "0.01"


def without(lines: list[dict[str, Any]]) -> None:
    lines[:] = [line for line in lines if line.get("session") != ONE]


def digest(lines: list[dict[str, Any]]) -> None:
    of(lines, "session:end")["files"]["raw.jsonl"] = START


def test_a_ledger_that_is_written_again_as_it_was_verifies(copy: Copy) -> None:
    directory = copy()
    write_again(directory, lambda _: None)
    assert verify_batch(directory).faults == ()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (member("session:end", "outcome", "refused"), "outcome"),
        (member("session:end", "capped", True), "capped"),
        (member("session:end", "requests", 1), "requests"),
        (member("session:end", "cost", {"kind": "reported", "usd": "0.01"}), "cost"),
        (member("session:end", "cost", {"kind": "reported", "usd": "1E+999999999"}), "dollars"),
        (member("session:end", "cost", {"kind": "reported", "usd": "NaN"}), "dollars"),
        (member("session:end", "cost", {"kind": "reported", "usd": "-1"}), "dollars"),
        (member("session:end", "ts", 10**18), "ts is"),
        (member("session:end", "tokens", None), "tokens"),
        (member("session:change", "files", [{"path": "x", "added": 1, "removed": 0}]), "files"),
        (member("session:start", "attempt", 2), "after 0"),
        (digest, "when the session ended"),
        (totals, "totals"),
        (without, "the ledger knows of no attempt"),
        (lambda lines: lines[0].update(batch=START), "batch.json is"),
        (lambda lines: lines[0].update(jobs=5), "jobs"),
        (lambda lines: lines.pop(), "statement"),
    ],
)
def test_what_the_files_do_not_bear_out_is_found(
    copy: Copy, change: Callable[[list[dict[str, Any]]], None], says: str
) -> None:
    directory = copy()
    write_again(directory, change)
    unsigned = [str(fault) for fault in verify_batch(directory).faults]
    assert any("ledger.jsonl: is sha256" in fault for fault in unsigned)
    if says != "statement":
        assert any(says in fault for fault in unsigned), unsigned


def test_a_ledger_is_needed(copy: Copy, signing_key: Ed25519PrivateKey) -> None:
    directory = copy()
    (directory / "ledger.jsonl").unlink()
    sign(directory, signing_key)
    found = [str(fault) for fault in verify_batch(directory).faults]
    assert any("ledger.jsonl: is missing" in fault for fault in found)
