"""batch.yaml: what a batch is made of. Pure but for reading the one file."""

from __future__ import annotations

from pathlib import Path

import msgspec
import yaml

from recorder.refusal import ExitCode, Refusal


class LineSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line: a tier and an arm, narrowed by category and probes left out."""

    tier: str
    arm: str
    category: str | None = None
    exclude: tuple[str, ...] = ()
    repetitions: int | None = None


class BatchSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A batch. ``corpus`` and ``rehearse`` are relative to the file's own directory."""

    corpus: str
    model: str
    lines: tuple[LineSpec, ...]
    parallel: int = 1
    seed: int = 0
    timeout_seconds: float = 1800.0
    rehearse: str | None = None
    lock: str | None = None


def read_spec(path: Path) -> BatchSpec:
    """The batch of a file. Refusal 2 names the file and the member (or line and column)."""
    try:
        document = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise Refusal(ExitCode.USAGE, f"{path}: {error.strerror}: name a batch file") from error
    except UnicodeDecodeError as error:
        raise Refusal(ExitCode.USAGE, f"{path}: is not UTF-8 (byte {error.start + 1})") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{mark.line + 1}:{mark.column + 1}: " if mark is not None else ""
        raise Refusal(ExitCode.USAGE, f"{path}:{where}{error.problem}") from error
    except RecursionError as error:
        raise Refusal(ExitCode.USAGE, f"{path}: is nested too deeply to be read") from error
    except yaml.YAMLError as error:
        raise Refusal(ExitCode.USAGE, f"{path}: is not YAML: {error}") from error
    try:
        spec = msgspec.convert(document, BatchSpec)
    except msgspec.ValidationError as error:
        raise Refusal(ExitCode.USAGE, f"{path}: {error}") from error
    faults = []
    if not spec.lines:
        faults.append(f"{path}: lines is empty: name at least one tier and arm")
    if not 1 <= spec.parallel <= 16:
        faults.append(f"{path}: parallel is {spec.parallel}: it is 1 to 16")
    if spec.timeout_seconds <= 0:
        faults.append(f"{path}: timeout_seconds is {spec.timeout_seconds}: it is more than 0")
    if faults:
        raise Refusal(ExitCode.USAGE, *faults)
    return spec
