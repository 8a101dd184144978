"""Transcripts on disk."""

from __future__ import annotations

from pathlib import Path

from recorder.refusal import ExitCode, Refusal
from recorder.transcript.checker import Checked, check


def check_file(path: Path) -> Checked:
    """Check one file. Raises ``Refusal``: 2 where it cannot be read, 19 where it is refused."""
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise Refusal(
            ExitCode.USAGE, f"{path}: cannot be read ({error.strerror}); give a transcript file"
        ) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise Refusal(
            ExitCode.USAGE,
            f"{path}, line {line}: is not UTF-8 (byte {error.start + 1} of the file); "
            "give a transcript file",
        ) from error
    return check(text.removeprefix("\ufeff"), str(path))
