"""``recorder derive corroboration``: what it prints, and its codes."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from recorder.cli import app
from recorder.refusal import ExitCode
from tests.evidence.conftest import Record

pytestmark = pytest.mark.engine

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setattr(app, "interrupt_on_signals", lambda: None)

    def run_in_process(*arguments: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        monkeypatch.setattr(
            sys, "argv", ["recorder", "derive", "corroboration", *map(str, arguments)]
        )
        code = int(app.main())
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return code, said.out, said.err

    return run_in_process


@pytest.fixture
def session(record: Record, tmp_path: Path) -> Path:
    shutil.copytree(record("basic").directory, tmp_path / "session")
    return tmp_path / "session"


def test_a_person_reads_a_table(run: Run, session: Path) -> None:
    code, out, _ = run(session)
    assert code == ExitCode.DONE
    assert "9 of 9 given by the provider" in out
    assert "Edit.replace_all: 1" in out


def test_a_program_reads_json(run: Run, session: Path) -> None:
    code, out, _ = run(session, "--json")
    read = json.loads(out)
    assert code == ExitCode.DONE
    assert read["agrees"] is True
    assert read["cost"]["table"] == "0.036864"


def test_witnesses_that_disagree_are_14_and_the_line_is_named(run: Run, session: Path) -> None:
    raw = session / "raw.jsonl"
    raw.write_bytes(raw.read_bytes().replace(b'"command":"ls -1"', b'"command":"ls -2"'))
    code, out, err = run(session)
    assert code == ExitCode.WITNESSES
    assert "input.command differs" in err
    assert "line 6" in err
    assert "DISAGREE" in out


@pytest.mark.parametrize("kept", ["nothing", "no result line", "a cut tail", "no init line"])
def test_a_stream_that_is_not_whole_is_13(run: Run, session: Path, kept: str) -> None:
    raw = session / "raw.jsonl"
    lines = raw.read_bytes().splitlines(keepends=True)
    ends = [b'"type":"result"' in line for line in lines]
    raw.write_bytes(
        {
            "nothing": b"",
            "no result line": b"".join(lines[: ends.index(True)]),
            "a cut tail": b"".join(lines)[:-9],
            "no init line": b"".join(line for line in lines if b'"subtype":"init"' not in line),
        }[kept]
    )
    code, out, err = run(session)
    assert code == ExitCode.OBSERVATION
    assert out == ""
    assert "raw.jsonl" in err


def test_a_broken_log_is_19(run: Run, session: Path) -> None:
    log = session / "egress.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    code, _, err = run(session)
    assert code == ExitCode.CORRUPT
    assert "the log was cut" in err


def test_what_cannot_be_read_is_2(run: Run, session: Path, tmp_path: Path) -> None:
    assert run(tmp_path / "nowhere")[0] == ExitCode.USAGE
    (session / "evidence.json").write_text("{")
    assert run(session)[0] == ExitCode.USAGE


def test_another_price_table_is_taken(run: Run, session: Path, tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text(
        'schema: recorder-prices/1\ndate: "2020-01-01"\n'
        "models: {claude-sonnet-4-5: {input: 30, output: 15, cache_write: 3.75, cache_read: 0.3}}\n"
    )
    code, out, _ = run(session, "--prices", prices)
    assert code == ExitCode.DONE
    assert "they differ" in out
    prices.write_text('schema: recorder-prices/1\ndate: "2020-01-01"\nmodels: {}\n')
    code, out, _ = run(session, "--prices", prices)
    assert code == ExitCode.DONE
    assert "no price for" in out
    assert "unknown" in out
