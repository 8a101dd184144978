"""An error of the system that names no file ends in one line too."""

from __future__ import annotations

import errno

import pytest

from recorder.cli import app


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.EHOSTUNREACH, "No route to host"), "No route to host"),
        (ConnectionResetError("it went away"), "it went away"),
        (OSError(), "OSError"),
    ],
)
def test_an_error_without_a_file_is_one_line(
    error: OSError, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(app, "app", fail)
    monkeypatch.setattr(app, "interrupt_on_signals", lambda: None)
    assert app.main() == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("recorder: ")
    assert says in line
