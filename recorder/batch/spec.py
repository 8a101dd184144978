"""batch.yaml: what a batch is made of. Pure but for reading the one file."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import structs

from recorder.refusal import ExitCode, Refusal
from recorder.session.credentials import Choice


class LineSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line: a tier and an arm, narrowed by category and probes left out.

    ``plan`` is a plan's text that was made elsewhere, relative to the file's own directory; it is
    narrowed already, so nothing narrows it here.
    """

    tier: str
    arm: str
    category: str | None = None
    exclude: tuple[str, ...] = ()
    repetitions: int | None = None
    plan: str | None = None


class BatchSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A batch. ``corpus`` and ``rehearse`` are relative to the file's own directory.

    ``plan_command`` is the command of an engine that plans, such as ``headwater probe plan``.
    ``credentials`` is how sessions hold the host's; None: the first that it has.
    """

    corpus: str
    model: str
    lines: tuple[LineSpec, ...]
    parallel: int = 1
    seed: int = 0
    timeout_seconds: float = 1800.0
    rehearse: str | None = None
    credentials: Choice | None = None
    session_dollars: float | None = None
    lock: str | None = None
    plan_command: str | None = None

    @property
    def bound(self) -> Decimal | None:
        """The dollars that a session's sidecar holds it to; None: no bound."""
        return None if self.session_dollars is None else Decimal(str(self.session_dollars))


class _Loader(yaml.SafeLoader):
    """YAML whose numbers are as they are written.

    YAML 1.1 reads ``repetitions: 010`` as eight, ``1_0`` as ten and ``0x10`` as sixteen.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping whose keys stand once: of two values nobody could say which one is meant."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} stands twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


_INTEGER = "tag:yaml.org,2002:int"
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _INTEGER]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_INTEGER, re.compile(r"-?(0|[1-9][0-9]*)$"), list("-0123456789"))


def read_spec(path: Path) -> BatchSpec:
    """The batch of a file. Refusal 2 names the file and the member (or line and column)."""
    try:
        document = yaml.load(path.read_text("utf-8"), Loader=_Loader)  # noqa: S506 - a safe one
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
    except (yaml.YAMLError, ValueError) as error:
        # A date that is none, or an integer of more digits than Python reads.
        raise Refusal(ExitCode.USAGE, f"{path}: is not YAML: {error}") from error
    try:
        spec = msgspec.convert(document, BatchSpec)
    except msgspec.ValidationError as error:
        raise Refusal(ExitCode.USAGE, f"{path}: {error}") from error
    faults = [
        f"{path}: line {number} has a plan, which fixes what it selects: leave category, exclude "
        "and repetitions out"
        for number, line in enumerate(spec.lines, start=1)
        if line.plan is not None and (line.category or line.exclude or line.repetitions)
    ]
    if not spec.lines:
        faults.append(f"{path}: lines is empty: name at least one tier and arm")
    if not 1 <= spec.parallel <= 16:
        faults.append(f"{path}: parallel is {spec.parallel}: it is 1 to 16")
    faults += [
        f"{path}: {member} is {value}: it is more than 0 and finite"
        for member, value in (
            ("timeout_seconds", spec.timeout_seconds),
            ("session_dollars", spec.session_dollars),
        )
        if value is not None and not (math.isfinite(value) and value > 0)
    ]
    if faults:
        raise Refusal(ExitCode.USAGE, *faults)
    return structs.replace(spec, lines=tuple(_placed(path, line) for line in spec.lines))


def _placed(path: Path, line: LineSpec) -> LineSpec:
    """The line with its plan's path as the working directory sees it."""
    return line if line.plan is None else structs.replace(line, plan=str(path.parent / line.plan))
