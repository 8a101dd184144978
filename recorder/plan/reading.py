"""The text of a plan, read for what a recorder copies from it. Nothing is recomputed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from recorder.plan.rendering import REFUSAL_HEADING
from recorder.refusal import ExitCode, Refusal

MEMBERS = ("lock", "tree", "selection", "read_set", "seed", "harness")

_ARMS = re.compile(r"arms: \[([a-z, -]*)\]")
_CAP = re.compile(r"stops at a turn cap of ([1-9][0-9]*)")
_EACH = re.compile(r"at a declared \$([0-9]+)\.([0-9]{2}) each")
_COUNT = re.compile(r"^[0-9]+ probes x [0-9]+ arms x ([0-9]+) repetitions = ", re.MULTILINE)
_PROBE = re.compile(r"- (\S+) \((.+)\)")
_FACT = re.compile(r" {4}(category|expects|answers|examines|oracle): (.*)")
_ROW = re.compile(r"- (.+) \(([^()]+)\) (sha256:[0-9a-f]{64}|-)")


@dataclass(frozen=True, slots=True)
class PlannedProbe:
    """One probe of the selection as the plan states it. ``answers`` is empty where none are."""

    id: str
    path: str
    category: str
    expectation: str
    answers: tuple[str, ...]
    examines: str = ""

    def names(self, path: str) -> bool:
        """Whether the plan says that the probe examines the document at a path."""
        return f"{self.examines}, ".find(f" at {path}, ") >= 0


@dataclass(frozen=True)
class PlanText:
    """What a recorder reads of a plan. ``members`` are the six, each as it is written.

    ``refusal`` is the text under the refusal heading, None where the run starts.
    ``repetitions`` is None where the plan prints no count of its sessions.
    """

    name: str
    members: Mapping[str, str]
    tier: str
    arms: tuple[str, ...]
    probes: tuple[PlannedProbe, ...]
    read_set: Mapping[str, str]
    max_turns: int | None
    session_cost_cents: int | None
    refusal: str | None
    repetitions: int | None = None

    def probe(self, identifier: str) -> PlannedProbe:
        """A probe of a plan that starts. Refuses (11) where it does not, or selects no such."""
        if self.refusal is not None:
            raise Refusal(ExitCode.PLAN_REFUSES, f"{self.name}: refuses this run: {self.refusal}")
        for probe in self.probes:
            if probe.id == identifier:
                return probe
        raise Refusal(
            ExitCode.PLAN_REFUSES,
            f"{self.name}: the plan does not select {identifier}; narrow it less or add the probe",
        )


def read_plan_file(path: Path) -> tuple[PlanText, str]:
    """The plan of a file and its text. Refuses (2) a file that cannot be read, (5) no plan."""
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise Refusal(
            ExitCode.USAGE, f"{path}: cannot be read ({error.strerror}); give a plan's text"
        ) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise Refusal(
            ExitCode.USAGE, f"{path}, line {line}: is not UTF-8; give a plan's text"
        ) from error
    return read_plan(text, str(path)), text


def read_plan(text: str, name: str) -> PlanText:
    """Read a plan. ``name`` is where it comes from. Refuses (5) a text that is no whole plan.

    A plan that refuses needs no member: its refusal is the one thing to say.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    refusal = _refusal(lines)
    first = _first_values(lines)
    missing = [member for member in (*MEMBERS, "tier") if member not in first]
    if missing and refusal is None:
        raise Refusal(
            ExitCode.PLAN,
            f"{name}: is no plan, it states no {', '.join(missing)}; give the text that "
            "`headwater probe plan` or `recorder plan` prints",
        )
    arms = next((found.group(1) for found in map(_ARMS.fullmatch, lines) if found), "")
    cap = _CAP.search(text)
    each = _EACH.search(text)
    count = _COUNT.search(text)
    return PlanText(
        name=name,
        members=MappingProxyType({key: first[key] for key in MEMBERS if key in first}),
        tier=first.get("tier", ""),
        arms=tuple(arm.strip() for arm in arms.split(",") if arm.strip()),
        probes=_probes(_under(lines, "## The selection")),
        read_set=_rows(_under(lines, "## The read set")),
        max_turns=int(cap.group(1)) if cap else None,
        session_cost_cents=int(each.group(1)) * 100 + int(each.group(2)) if each else None,
        refusal=refusal,
        repetitions=int(count.group(1)) if count else None,
    )


def _refusal(lines: Sequence[str]) -> str | None:
    if REFUSAL_HEADING not in lines:
        return None
    body = [line.strip() for line in _under(lines, REFUSAL_HEADING) if line.strip()]
    return " ".join(body) or "it gives no reason"


def _first_values(lines: Sequence[str]) -> dict[str, str]:
    """Each member's first line, verbatim behind its colon."""
    found: dict[str, str] = {}
    for line in lines:
        key, colon, value = line.partition(": ")
        if colon and value.strip() and key in (*MEMBERS, "tier"):
            found.setdefault(key, value)
    return found


def _under(lines: Sequence[str], heading: str) -> Sequence[str]:
    """The lines under a heading, to the next one of its level."""
    if heading not in lines:
        return ()
    start = list(lines).index(heading) + 1
    for at in range(start, len(lines)):
        if lines[at].startswith("## "):
            return lines[start:at]
    return lines[start:]


def _probes(lines: Sequence[str]) -> tuple[PlannedProbe, ...]:
    found: list[tuple[str, str, dict[str, str]]] = []
    for line in lines:
        if head := _PROBE.fullmatch(line):
            found.append((head.group(1), head.group(2), {}))
        elif found and (fact := _FACT.fullmatch(line)):
            found[-1][2][fact.group(1)] = fact.group(2)
    return tuple(
        PlannedProbe(
            id=identifier,
            path=path,
            category=facts.get("category", ""),
            expectation=facts.get("expects", ""),
            answers=tuple(facts["answers"].split(", ")) if "answers" in facts else (),
            examines=facts.get("examines", ""),
        )
        for identifier, path, facts in found
    )


def _rows(lines: Sequence[str]) -> Mapping[str, str]:
    found = (row for row in map(_ROW.fullmatch, lines) if row)
    return MappingProxyType({row.group(1): row.group(3) for row in found})
