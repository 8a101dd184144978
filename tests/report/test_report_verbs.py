"""``recorder report`` and ``recorder show`` over a batch that was recorded."""

from __future__ import annotations

import io
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from rich.console import Console

from recorder.report.reading import read_batch, read_one
from recorder.report.terminal import batch_group, session_group
from tests.recording.rig import recorder
from tests.report import made
from tests.report.conftest import opened
from tests.report.recorded import recorded_batch

FIRST = "L1-campaign-present-p1-r1"
WRITER = "L1-campaign-present-p2-r1"


@pytest.fixture(scope="module")
def batch() -> Path:
    return recorded_batch()


def shown(thing: object) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(thing)
    return console.export_text()


@pytest.mark.engine
def test_a_recorded_batch_has_a_report(batch: Path, browser: Browser, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    ran = recorder("report", batch, "--out", out)
    assert (ran.code, ran.err, ran.out) == (0, "", f"{out}\n")
    with opened(browser, out) as page:
        expect(page.locator(".rehearsal")).to_be_visible()
        assert page.locator("#glance table").first.locator("tbody tr").count() == 2
        cells = page.locator(".heat").inner_text()
        assert "api.anthropic.com:443" in cells
        assert "mirror.recorder.test:443" in cells
    with opened(browser, out, f"#/session/{WRITER}") as page:
        calls = page.get_by_role("table", name="Calls")
        assert calls.locator(".badge.given").count() == calls.locator("tbody tr").count() == 2
        expect(page.locator(".diff .add").first).to_contain_text("# Decisions in force")
        expect(page.locator(".prose")).to_contain_text("The channel.")
        assert "words" not in page.locator("#session").inner_text()


@pytest.mark.engine
def test_every_call_of_a_recorded_batch_is_joined_and_on_the_axis(batch: Path) -> None:
    view = read_batch(batch)
    assert view.rehearsal
    assert [line.outcomes["recorded"] for line in view.lines] == [3, 3]
    for session in view.sessions:
        assert session.faults == ()
        assert session.calls
        for call in session.calls:
            assert call.mark in ("given", "normalised")
            assert call.at is not None
            assert call.end is not None
            assert 0 < call.at <= call.end <= (session.seconds or 0) + 1
            giver = next(r for r in session.requests if r.request == call.request)
            assert giver.at is not None
            assert giver.at <= call.at


@pytest.mark.engine
def test_a_session_is_shown_by_its_directory_and_by_each_of_its_files(batch: Path) -> None:
    directory = batch / "sessions" / FIRST
    text = shown(session_group(read_one(directory)))
    for said in ("Rehearsal, not a measurement", "curl -sS", "refused: connect-host", "given in 1"):
        assert said in text
    for name in ("evidence.json", "raw.jsonl", "egress.jsonl", "record.md"):
        assert shown(session_group(read_one(directory / name))) == text
    ran = recorder("show", directory)
    assert (ran.code, ran.err) == (0, "")
    assert "→ mirror.recorder.test:443 CONNECT" in ran.out
    whole = recorder("show", batch).out
    assert "By line and arm" in whole
    assert not [line for line in (ran.out + whole).splitlines() if line.endswith(" ")]


@pytest.mark.engine
def test_a_stream_or_a_log_alone_is_shown_as_what_it_is(batch: Path, tmp_path: Path) -> None:
    for name, said in (("raw.jsonl", "curl -sS"), ("egress.jsonl", "refused: connect-host")):
        alone = shutil.copy(batch / "sessions" / FIRST / name, tmp_path / f"some-{name}")
        assert said in shown(session_group(read_one(Path(alone))))


def test_why_a_session_was_refused_is_shown(tmp_path: Path) -> None:
    evidence = made.evidence("one", refusal={"code": 12, "reasons": ["no init line"]})
    one = made.write_session(tmp_path / "one", evidence_json=evidence)
    text = shown(session_group(read_one(one)))
    assert "refused, exit 12" in text
    assert "refused: no init line" in text


def test_a_terminal_gets_no_escape_of_a_session(tmp_path: Path) -> None:
    raw = made.lines(made.assistant(1.0, 1, "[red]\x1b[31m\x9b0m", {"command": "\x1b]0;x\x07"}))
    one = made.write_session(tmp_path / "one", raw_jsonl=raw)
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(session_group(read_one(one)))
    text = console.export_text(styles=False)
    assert "[red]\\x1b[31m\\x9b0m" in text
    assert not {"\x1b", "\x9b", "\x07"} & set(text)


def test_what_is_neither_is_refused(tmp_path: Path) -> None:
    for verb in ("report", "show"):
        ran = recorder(verb, tmp_path)
        assert ran.code == 2
        assert ran.err.startswith(f"recorder: {tmp_path}: is n")
    (tmp_path / "sessions").mkdir()
    (tmp_path / "batch.json").write_text("{")
    ran = recorder("report", tmp_path)
    assert ran.code == 19
    assert "batch.json: is not a batch's own record" in ran.err


def test_no_link_and_no_fifo_of_a_session_is_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(made.evidence("one"))
    one = made.write_session(tmp_path / "one", started=b"x")
    (one / "evidence.json").symlink_to(secret)
    os.mkfifo(one / "raw.jsonl")
    found = read_one(one)
    assert found.outcome == "unfinished"
    assert [fault.partition(":")[0] for fault in found.faults] == ["evidence.json", "raw.jsonl"]
    assert stat.S_ISFIFO((one / "raw.jsonl").lstat().st_mode)


def test_an_empty_batch_and_one_that_did_not_start_have_a_report(
    tmp_path: Path, report_of: Callable[..., Path], browser: Browser
) -> None:
    (tmp_path / "sessions").mkdir()
    view = read_batch(tmp_path)
    assert view.sessions == ()
    assert "By line and arm" in shown(batch_group(view))
    (tmp_path / "sessions" / "none").mkdir()
    (row,) = (
        line
        for line in shown(batch_group(read_batch(tmp_path))).splitlines()
        if "not run" in line and line.startswith("none")
    )
    assert "unknown" not in row
    with opened(browser, report_of("empty", view)) as page:
        expect(page.locator("h1:visible")).to_have_count(1)
    with opened(browser, report_of("empty", view), "#/sessions") as page:
        expect(page.get_by_role("status")).to_have_text("0 of 0 sessions")
