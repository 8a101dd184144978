"""Checks the reports of a tree: ``python3 check_reports.py TREE``. Standard library only.

Prints a JSON list of ``{"path", "rule"}``, one for each report and each rule that it breaks, and
exits 1 where there is one.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

IDENTIFIER = re.compile(r"SLU-DEC-[0-9]{4}")
SUPERSEDED = re.compile(r"^status: superseded$", re.MULTILINE)
DECISIONS = "docs/decisions"
REPORTS = "reports"


def broken(report: str, superseded: set[str]) -> Iterator[str]:
    """The rules that a report breaks."""
    cited = set(IDENTIFIER.findall(report))
    if not cited:
        yield "report.cites_nothing"
    if cited & superseded:
        yield "report.cites_superseded_decision"


def main() -> int:
    tree = Path(sys.argv[1])
    superseded = set()
    for path in (tree / DECISIONS).glob("*.md"):
        text = path.read_text(encoding="utf-8")
        if SUPERSEDED.search(text.partition("\n---")[0]):
            superseded.update(re.findall(r"^id: (\S+)", text, re.MULTILINE))
    findings = [
        {"path": path.relative_to(tree).as_posix(), "rule": rule}
        for path in sorted((tree / REPORTS).rglob("*.md"))
        for rule in broken(path.read_text(encoding="utf-8"), superseded)
    ]
    print(json.dumps(findings))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
