"""The verbs ``batch …`` as they are typed: what is refused before any engine is asked."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.batch.null_host import Act, Batch, DriverKilledError, NullHost, spec_of
from tests.cli.test_refusals import Run, out, refused, run
from tests.recording.rig import EXAMPLES

__all__ = ["out", "run"]

SPEC = EXAMPLES / "batch.yaml"


@pytest.mark.parametrize("option", ["--max-sessions", "--canary"])
@pytest.mark.parametrize("written", ["0", "010", "-1", "abc", "1.5"])
def test_a_count_that_is_none_is_usage_o03(run: Run, out: Path, option: str, written: str) -> None:
    ran = run("batch", "run", SPEC, "--out", out, f"{option}={written}")
    assert ran.code == 2
    assert "Traceback" not in ran.err
    assert not out.exists()


@pytest.mark.parametrize("written", ["0", "-1", "nan", "inf", "ten"])
def test_a_cap_that_is_none_is_usage_q01(run: Run, out: Path, written: str) -> None:
    ran = run("batch", "run", SPEC, "--out", out, f"--cap-dollars={written}")
    assert ran.code == 2
    assert not out.exists()


def test_a_name_of_a_corpus_moves_no_terminal_s_cursor(run: Run, spec: Path) -> None:
    declaration = spec.parent / "corpus/.headwater/probe.yml"
    text = declaration.read_text()
    declaration.write_text(text.replace("campaign:", '"\\e[2J\\u202ex":'))
    ran = run("batch", "plan", spec)
    assert ran.code == 2
    assert "`\\x1b[2J\\u202ex` is no tier" in ran.err
    assert "\x1b" not in ran.err


@pytest.mark.parametrize("written", ["-1", "inf", "1e20"])
def test_a_heartbeat_that_no_clock_can_wait_for_is_usage(run: Run, out: Path, written: str) -> None:
    assert run("batch", "run", SPEC, "--out", out, f"--heartbeat={written}").code == 2
    assert not out.exists()


def test_who_stops_watching_stops_nothing_and_is_told_nothing(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "corpus", tmp_path / "corpus")
    batch = Batch(tmp_path / "corpus", tmp_path / "out", spec_of(tmp_path / "corpus"))
    killer = NullHost(batch.provider, lambda *_: Act(dies="started"))
    with pytest.raises(DriverKilledError):
        batch.run(killer)
    watching = subprocess.Popen(
        [sys.executable, "-m", "recorder.cli.app", "batch", "status", "--watch", str(batch.out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert watching.stdout is not None
    assert watching.stdout.readline().startswith(b"running: ")
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=30)
    assert (watching.returncode, said) == (130, b"")


def test_a_stop_file_refuses_a_batch_before_an_engine_is_asked_q25(run: Run, out: Path) -> None:
    out.mkdir()
    (out / "stop").touch()
    refused(run("batch", "run", SPEC, "--out", out), 15, f"{out}/stop", "remove it")


@pytest.fixture
def spec(tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    return tmp_path / "examples" / "batch.yaml"


@pytest.mark.parametrize("verb", ["plan", "run"])
@pytest.mark.parametrize(
    ("old", "new", "code", "says"),
    [
        ("model: claude-sonnet-4-5", "model: gpt-6", 2, "the policy lets no such model"),
        ("rehearse: rehearsal.yaml", "rehearse: none.yaml", 2, "none.yaml"),
        ("parallel: 2", f"parallel: 2\npin: sha256:{'0' * 64}", 4, "its tree is sha256:"),
        ("parallel: 2", "parallel: 2\nprices: none.yaml", 2, "name a price table"),
        ("parallel: 2", "parallel: 2\npolicy: none.yaml", 2, "name an egress policy"),
    ],
)
def test_what_run_refuses_plan_finds(
    run: Run, out: Path, spec: Path, verb: str, old: str, new: str, code: int, says: str
) -> None:
    text = spec.read_text()
    assert old in text
    spec.write_text(text.replace(old, new))
    words = ("batch", verb, spec, *(("--out", out) if verb == "run" else ()))
    refused(run(*words), code, says)


@pytest.mark.parametrize("verb", ["plan", "run"])
def test_a_script_that_answers_nothing_to_a_probe_is_found(
    run: Run, out: Path, spec: Path, verb: str
) -> None:
    script = spec.with_name("short.yaml")
    script.write_text("PROBE-EX-units: [{content: [{text: bytes}]}]\n")
    words = ("batch", verb, spec, "--rehearse", script)
    words = (*words, *(("--out", out) if verb == "run" else ()))
    refused(run(*words), 2, "short.yaml: answers nothing to PROBE-EX-")


def test_plan_says_a_batch_s_cap(run: Run, spec: Path) -> None:
    spec.write_text(spec.read_text() + "\ncaps: {batch_dollars: 2}\n")
    ran = run("batch", "plan", spec)
    assert ran.code == 0, ran.err
    assert "cap: $2.00, and the batch's price is above it" in ran.out


@pytest.mark.parametrize("verb", ["status", "accept"])
def test_a_directory_without_a_ledger_is_no_batch(run: Run, tmp_path: Path, verb: str) -> None:
    refused(run("batch", verb, tmp_path), 2, "holds no ledger.jsonl")


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    shutil.copytree(EXAMPLES / "corpus", tmp_path / "corpus")
    return Batch(tmp_path / "corpus", tmp_path / "out", spec_of(tmp_path / "corpus"))


def test_status_is_told_from_the_ledger_alone_and_writes_nothing(run: Run, batch: Batch) -> None:
    batch.run(max_sessions=2)
    before = {path: path.stat().st_mtime_ns for path in batch.out.rglob("*")}
    ran = run("batch", "status", batch.out, "--watch")
    assert ran.code == 0
    assert ran.out.splitlines()[0] == "ended: 2 of 3 sessions over, 2 recorded"
    told = json.loads(run("batch", "status", batch.out, "--json").out)
    assert (told["recorded"], told["remaining"], told["code"]) == (2, 1, 15)
    assert told["totals"]["usd"] == "0.500000"
    assert {path: path.stat().st_mtime_ns for path in batch.out.rglob("*")} == before


def test_the_status_of_a_rehearsal_says_that_it_is_one(run: Run, batch: Batch) -> None:
    batch.run()
    assert "ehears" not in run("batch", "status", batch.out).out
    pinned = batch.out / "batch.json"
    pinned.write_text(pinned.read_text().replace('"rehearsal": null', '"rehearsal": "sha256:0"'))
    said = run("batch", "status", batch.out).out.splitlines()
    assert said[0].startswith("Rehearsal, not a measurement")
    assert said[1] == "ended: 3 of 3 sessions over, 3 recorded"


def test_a_canary_is_accepted_with_a_reason(run: Run, batch: Batch) -> None:
    batch.run(canary=1)
    ran = run("batch", "accept", batch.out, "--reason", "it reads what it should")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("accepted: L1-campaign-present-")
    last = json.loads((batch.out / "ledger.jsonl").read_text().splitlines()[-1])
    assert (last["kind"], last["reason"]) == ("batch:accept", "it reads what it should")
    refused(run("batch", "accept", batch.out), 2, "accepted already")
    assert batch.run().standing.code == 0
