"""batch.yaml: what a batch is made of. Pure but for reading the one file.

``spec.schema.json`` is the validator: what it names and bounds is said nowhere else. Every fault is
told, each with its line and column.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import jsonschema
import msgspec
from msgspec import structs
from yaml.nodes import MappingNode, Node, ScalarNode

from recorder.plan import nodes
from recorder.refusal import ExitCode, Refusal
from recorder.session.credentials import Choice

Place = tuple[int, int]
"""Line and column, both from 1."""
Where = tuple[str | int, ...]

MAXIMUM_NODES = 50_000
MAXIMUM_DEPTH = 8

_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,17})\.[0-9]{1,18}")
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


class Caps(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dollars; None: no cap."""

    batch_dollars: float | None = None
    session_dollars: float | None = None


class LineSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line: a tier and an arm, narrowed by category and probes left out.

    ``plan`` is a plan's text that was made elsewhere, relative to the file's own directory; it is
    narrowed already, so nothing narrows it here. ``as_first``: the line was written in one string,
    which has no place for a count, and takes that of the first line, as the form has it (O13).
    """

    tier: str
    arm: str
    category: str | None = None
    exclude: tuple[str, ...] = ()
    repetitions: int | None = None
    plan: str | None = None
    as_first: bool = False


class BatchSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A batch; ``spec.schema.json`` says what each member is for.

    Paths are relative to the file's own directory as they are written; ``read_spec`` gives those of
    plans, the policy and the prices as the working directory sees them. ``credentials`` is how
    sessions hold the host's; None: the first that it has.
    """

    corpus: str
    model: str
    lines: tuple[LineSpec, ...]
    pin: str | None = None
    harness: str | None = None
    repetitions: int | None = None
    parallel: int = 1
    seed: int = 0
    caps: Caps = Caps()
    session_dollars: float | None = None
    prices: str | None = None
    max_turns: int | None = None
    timeout_seconds: float = 1800.0
    limits: Literal["required", "report"] = "report"
    free_disk: int | str = "1 GiB"
    credentials: Choice | None = None
    policy: str | None = None
    rehearse: str | None = None
    canary: int | None = None
    lock: str | None = None
    plan_command: str | None = None

    @property
    def bound(self) -> Decimal | None:
        """The dollars that a session's sidecar holds it to; None: no bound."""
        return _decimal(self.caps.session_dollars or self.session_dollars)

    @property
    def cap(self) -> Decimal | None:
        """The dollars that the batch may spend; None: as much as its tiers declare."""
        return _decimal(self.caps.batch_dollars)

    @property
    def disk_floor(self) -> int:
        """Bytes that stay free."""
        if isinstance(self.free_disk, int):
            return self.free_disk
        return int(self.free_disk[:-3]) * _UNITS[self.free_disk[-3:]]


def with_count(spec: BatchSpec, line: LineSpec, first: int | None) -> LineSpec:
    """A line with the count of repetitions that it takes where it names none.

    ``first`` is the first line's own, None while that is what is asked for.
    """
    if line.repetitions is not None or line.plan is not None:
        return line
    count = spec.repetitions or (first if line.as_first else None)
    return line if count is None else structs.replace(line, repetitions=count)


def _decimal(dollars: float | None) -> Decimal | None:
    return None if dollars is None else Decimal(str(dollars))


@cache
def spec_schema() -> Mapping[str, Any]:
    """The schema of a batch file."""
    text = resources.files("recorder.batch").joinpath("spec.schema.json").read_text("utf-8")
    schema: Mapping[str, Any] = json.loads(text)
    return schema


def read_spec(path: Path) -> BatchSpec:
    """The batch of a file. Refusal 2 names every fault by file, line and column."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise Refusal(ExitCode.USAGE, f"{path}: {error.strerror}: name a batch file") from error
    except UnicodeDecodeError as error:
        raise Refusal(ExitCode.USAGE, f"{path}: is not UTF-8 (byte {error.start + 1})") from error
    spec, faults = parse_spec(text)
    if spec is None:
        raise Refusal(ExitCode.USAGE, *(f"{path}:{fault}" for fault in faults))
    return structs.replace(
        spec,
        lines=tuple(structs.replace(line, plan=_placed(path, line.plan)) for line in spec.lines),
        policy=_placed(path, spec.policy),
        prices=_placed(path, spec.prices),
    )


def parse_spec(text: str) -> tuple[BatchSpec | None, tuple[str, ...]]:
    """A batch, or its faults in the order of the text, each ``line:column: what``."""
    reading = _Reading()
    try:
        root = nodes.compose(text)
        if root is None:
            return None, ("1:1: the file is empty: name corpus, model and lines",)
        document = reading.value(root, (), 0)
    except nodes.NodeError as error:
        return None, (str(error),)
    except RecursionError:
        # The composer's own: a file of brackets alone.
        return None, ("1:1: is nested too deeply to be read",)
    except ValueError as error:
        return None, (f"1:1: is not YAML: {error}",)
    validator = jsonschema.Draft202012Validator(spec_schema())
    for broken in validator.iter_errors(document):
        for where, reason in _told(broken):
            reading.fault(where, reason)
    for where, reason in _across(document):
        reading.fault(where, reason)
    if not reading.faults:
        document = _with_lines(document, reading)
    if reading.faults:
        ordered = sorted(dict.fromkeys(reading.faults))
        return None, tuple(f"{line}:{column}: {reason}" for (line, column), reason in ordered)
    return msgspec.convert(document, BatchSpec), ()


@dataclass
class _Reading:
    """The document as plain values, and where each value and each key of it stands."""

    places: dict[Where, Place] = field(default_factory=dict)
    faults: list[tuple[Place, str]] = field(default_factory=list)
    visited: int = 0

    def value(self, node: Node, where: Where, depth: int) -> Any:
        self.visited += 1
        if depth > MAXIMUM_DEPTH or self.visited > MAXIMUM_NODES:
            # An alias may stand for what holds it, which has no end.
            raise nodes.fault(node, "is nested too deeply, or holds too much, to be read")
        self.places.setdefault(where, _place(node))
        if isinstance(node, ScalarNode):
            return _scalar(node)
        if isinstance(node, MappingNode):
            found: dict[str, Any] = {}
            for key, value in node.value:
                name = nodes.text(key, "a key")
                if name in found:
                    self.faults.append((_place(key), f"the key {name!r} stands twice"))
                    continue
                # A member's fault is told where its name stands.
                self.places[*where, name] = _place(key)
                found[name] = self.value(value, (*where, name), depth + 1)
            return found
        return [
            self.value(item, (*where, number), depth + 1) for number, item in enumerate(node.value)
        ]

    def fault(self, where: Where, reason: str) -> None:
        self.faults.append((self.places[where], reason))


def _place(node: Node) -> Place:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _scalar(node: ScalarNode) -> str | int | float | None:
    """A plain number as one, and everything else as it is written.

    YAML 1.1 reads ``repetitions: 010`` as eight, and the probe ``no`` as false.
    """
    written = str(node.value)
    if node.style:
        return written
    if _WHOLE.fullmatch(written):
        return int(written)
    if _DECIMAL.fullmatch(written):
        return float(written)
    return None if written in ("", "~", "null") else written


def _told(error: jsonschema.ValidationError) -> Iterator[tuple[Where, str]]:
    """A fault of the schema in our words, with where it stands."""
    where = tuple(error.absolute_path)
    name = _name(where)
    value: Any = error.instance
    wanted: Any = error.validator_value
    schema: Any = error.schema
    match error.validator:
        case "required":
            for missing in schema["required"]:
                if missing not in value:
                    yield where, f"{name} names no `{missing}`: it needs one"
        case "additionalProperties":
            known = schema["properties"]
            for extra in value:
                if extra not in known:
                    yield (*where, extra), f"{extra!r} is no member of {name}{_like(extra, known)}"
        case "type":
            kinds = [wanted] if isinstance(wanted, str) else wanted
            means = " or ".join(_KINDS[kind] for kind in kinds)
            yield where, f"{name} is {_shown(value)}, and has to be {means}"
        case "enum":
            yield where, f"{name} is {_shown(value)}: it is one of {', '.join(wanted)}"
        case "minimum":
            yield where, f"{name} is {value}: it is {_range(schema)}"
        case "maximum":
            yield where, f"{name} is {value}: it is {_range(schema)}"
        case "exclusiveMinimum":
            yield where, f"{name} is {value}: it is more than {wanted}"
        case "minItems" | "minLength":
            yield where, f"{name} is empty: name at least one"
        case "pattern":
            yield where, f"{name} is {_shown(value)}: {_FORMS[str(where[0])]}"
        case _:
            yield where, f"{name}: {error.message}"


_KINDS = {
    "array": "a sequence",
    "integer": "a whole number",
    "number": "a number",
    "object": "a mapping",
    "string": "text (in quotes, where it looks like a number)",
}
_FORMS = {
    "free_disk": "write bytes, or a number of MiB or GiB",
    "harness": "write a version, such as 2.1.332",
    "lines": "write `tier arm category`, then the probes to leave out",
    "pin": "write the corpus' digest (sha256:…) or a commit in full",
}


def _name(where: Where) -> str:
    """`the batch`, `parallel`, `line 2`, `arm of line 2`."""
    match where:
        case ():
            return "the batch"
        case ("lines", int(number)):
            return f"line {number + 1}"
        case ("lines", int(number), *rest):
            return f"{rest[0]} of line {number + 1}"
        case _:
            return ".".join(str(part) for part in where)


def _shown(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, list):
        return "a sequence"
    if isinstance(value, dict):
        return "a mapping"
    return repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:60]}…"


def _range(schema: Mapping[str, Any]) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    return f"{least} or more" if most is None else f"{least} to {most}"


def _like(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f": {close[0]!r} is meant?" if close else f": those are {', '.join(sorted(known))}"


def _with_lines(document: Any, reading: _Reading) -> Any:
    """The document with each line that was written in one string as its members."""
    lines = document["lines"]
    if isinstance(lines, str):
        # O01: line numbers count kept lines only, and so do ours.
        lines = [kept for kept in lines.splitlines() if kept.strip() and not _is_comment(kept)]
        for number, line in enumerate(lines):
            reading.places["lines", number] = reading.places["lines",]
            if len(line.split()) < 3:
                form = f"line {number + 1} is {line!r}: {_FORMS['lines']}"
                reading.fault(("lines", number), form)
        if not lines:
            reading.fault(("lines",), "lines is empty: name at least one")
    if reading.faults:
        return document
    return {**document, "lines": [_line(line) for line in lines]}


def _is_comment(line: str) -> bool:
    return line.split()[0].startswith("#")


def _line(line: Any) -> Any:
    if not isinstance(line, str):
        return line
    tier, arm, category, *exclude = line.split()
    return {
        "tier": tier,
        "arm": arm,
        "category": category,
        "exclude": exclude,
        "as_first": True,
    }


def _across(document: Any) -> Iterator[tuple[Where, str]]:
    """What members say against each other, whatever else is at fault."""
    if not isinstance(document, dict):
        return
    lines = document.get("lines")
    for number, line in enumerate(lines if isinstance(lines, list) else ()):
        if (
            isinstance(line, dict)
            and "plan" in line
            and line.keys() & {"category", "exclude", "repetitions"}
        ):
            reason = "which fixes what it selects: leave category, exclude and repetitions out"
            yield ("lines", number), f"line {number + 1} has a plan, {reason}"
    caps = document.get("caps")
    if "session_dollars" in document and isinstance(caps, dict) and "session_dollars" in caps:
        yield ("session_dollars",), "session_dollars stands here and under caps: leave one out"


def _placed(spec: Path, written: str | None) -> str | None:
    """A file beside the batch file as the working directory sees it."""
    return None if written is None else str(spec.parent / written)
