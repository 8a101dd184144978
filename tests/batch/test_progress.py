"""What a person sees of a running batch: a picture on a terminal, plain lines anywhere else."""

from __future__ import annotations

import errno
import io
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from recorder.batch.halts import RULES, Halt
from recorder.batch.progress import Progress, picture, standard_error
from recorder.batch.status import Status, status_of
from recorder.refusal import ExitCode, Refusal
from recorder.report.visible import one_line
from tests.batch.ledgers import end, run_start, start, state_of

NAME = "L1-campaign-present-p1-r1"


def status() -> Status:
    state = state_of(run_start(4, batch="2.00"), start(NAME), end(NAME), began=0)
    return status_of(state, 4)


def console(*, terminal: bool) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, force_terminal=terminal, width=100, color_system=None), file


def ended(*reasons: str) -> Any:
    refusal = Refusal(ExitCode.HARNESS, *reasons) if reasons else None
    return SimpleNamespace(job=SimpleNamespace(session=NAME), refusal=refusal)


def test_without_a_terminal_every_start_and_end_is_a_line() -> None:
    shown, file = console(terminal=False)
    times = iter((0.0, 1.0, 2.5, 3.0))
    progress = Progress(shown, lambda: next(times))
    progress.status = status
    with progress.shown():
        progress.began(ended().job)
        progress.ended(ended(), 1, 4)
        progress.ended(ended("session s: the harness exited 1 [of x]"), 2, 4)
    assert file.getvalue().splitlines() == [
        f"   1.0 s  {NAME}",
        f"   2.5 s  {NAME}  recorded  1/4",
        f"   3.0 s  {NAME}  exit 10  2/4",
        "recorder: session s: the harness exited 1 [of x]",
    ]


def test_on_a_terminal_the_status_is_drawn_and_refusals_stay_above_it() -> None:
    shown, file = console(terminal=True)
    progress = Progress(shown)
    with progress.shown():
        progress.status = status
        progress.began(ended().job)
        progress.ended(ended("session s: why"), 1, 4)
    drawn = file.getvalue()
    assert "1/4" in drawn
    assert "money: $0.25 of $2.00" in drawn
    assert "recorder: session s: why" in drawn
    assert f"s  {NAME}" not in drawn


def test_what_a_session_wrote_moves_no_terminal_s_cursor() -> None:
    shown, file = console(terminal=False)
    progress = Progress(shown, legible=one_line)
    progress.ended(ended("session s: \x1b[2Jgone"), 1, 4)
    assert file.getvalue().splitlines()[1] == "recorder: session s: \\x1b[2Jgone"


@pytest.mark.parametrize("code", [errno.EPIPE, errno.EIO])
def test_a_batch_outlives_whoever_reads_its_progress(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(code, "nobody reads")

    monkeypatch.setattr("sys.stderr", Gone())
    progress = Progress(standard_error())
    progress.began(ended().job)
    progress.ended(ended("session s: why"), 1, 4)
    progress.said("more")


def test_a_picture_is_a_bar_and_the_status_own_lines() -> None:
    shown, file = console(terminal=False)
    shown.print(picture(status()))
    lines = file.getvalue().splitlines()
    assert lines[0].rstrip().endswith("1/4")
    assert [line.rstrip() for line in lines[1:]] == list(status().said())


def test_a_wait_is_told_with_its_end() -> None:
    shown, file = console(terminal=False)
    outage = next(rule for rule in RULES if rule.name == "outage")
    cast(Any, Progress(shown)).waits(Halt(outage, "s"), 300.0)
    assert file.getvalue().startswith("recorder: outage: waits 5 min, until 20")
