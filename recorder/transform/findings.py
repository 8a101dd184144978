"""What a check reported, read from what it printed: the rules by path. It reads no probe.

The format is docs/findings.md's. A shape that cannot be read is never an empty list of findings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from recorder.transform.produced import Places, ProducedFile


class FindingsError(ValueError):
    """What a check printed is not of the format. The text says where."""


class _Finding(msgspec.Struct, frozen=True):
    path: str
    rule: str


class _Report(msgspec.Struct, frozen=True):
    findings: tuple[_Finding, ...]


@dataclass(frozen=True)
class Findings:
    """The rules that reported, by the path relative to the checked tree."""

    rules: Mapping[str, tuple[str, ...]]

    @property
    def count(self) -> int:
        """Pairs of a path and a rule, each once."""
        return sum(map(len, self.rules.values()))

    def over(self, path: str) -> tuple[str, ...]:
        """The rules that reported over exactly this path, sorted, each once; none is ``()``."""
        return self.rules.get(path, ())

    def attach(self, file: ProducedFile) -> ProducedFile:
        """The artifact with its findings; unchanged where the check could not have read it.

        That is one outside the workspace, one that is no regular file there, and one whose name
        is not UTF-8, which JSON cannot name.
        """
        if file.path.startswith("/") or not file.sha256 or not _can_be_named(file.path):
            return file
        return replace(file, findings=self.over(file.path))


def read_findings(printed: bytes, tree: str) -> Findings:
    """The findings that a check printed. ``tree`` is where what it checked lay, absolute.

    Raises ``FindingsError`` for anything that is not of the format.
    """
    try:
        report = msgspec.json.decode(printed, type=_Report | tuple[_Finding, ...])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        start = printed[:60].decode("utf-8", "replace")
        said = f"it printed {start!r}" if start.strip() else "it printed nothing"
        raise FindingsError(f"{said}, which is no list of findings: {error}") from error
    listed = report.findings if isinstance(report, _Report) else report
    places = Places((tree,))
    rules: defaultdict[str, set[str]] = defaultdict(set)
    for number, finding in enumerate(listed, start=1):
        if not finding.rule.strip():
            raise FindingsError(f"its finding {number} names no rule")
        if not finding.path:
            raise FindingsError(f"its finding {number} names no path")
        rules[places.place(finding.path)].add(finding.rule)
    return Findings({path: tuple(sorted(names)) for path, names in rules.items()})


def _can_be_named(path: str) -> bool:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        # A byte that is not UTF-8, kept as half a surrogate pair.
        return False
    return True
