"""Every tested row of the reference's behaviours is named by a test here, or said not to apply."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SECTIONS = "AGIJKLMN"


# Rows whose construction is another one here, each with what stands in its place.
OTHERWISE = {
    "G06": "the harness keeps its own API host and the sidecar's certificate: pinned routing",
    "G09": "the configuration directory starts empty; a credential is sealed in the sidecar",
    "G10": "nothing was copied in, so nothing is removed",
    "G12": "no variable of the host passes; the key goes to the sidecar on its standard input",
    "M14": "the log directory lies outside the workspace",
    "N11": "liveness is counted and called self-reported; a session's name would tell its arm",
    "N12": "the same",
}
_ROW = re.compile(r"^\| ([A-Z]\d\d) \|.*\| ([^|]*) \|$", re.MULTILINE)
_NAMES = (
    re.compile(r"def test_([a-z0-9_]+)\("),
    re.compile(r"""id=["']([A-Z]\d\d)\b"""),
    re.compile(r"""["']([A-Z]\d\d)(?:-[\w-]+)?["']"""),
    # A docstring that names the rows of its test, after the test's own sentence.
    re.compile(r'"""((?:[A-Z]\d\d(?:, )?)+)"""'),
)


def named(project: Path) -> set[str]:
    found: set[str] = set()
    for path in sorted((project / "tests").rglob("test_*.py")):
        text = path.read_text("utf-8")
        for pattern in _NAMES:
            for match in pattern.findall(text):
                found.update(
                    row.upper()
                    for row in re.findall(
                        r"(?<![a-zA-Z0-9])([a-zA-Z]\d\d)(?![0-9])", match.replace("_", " ")
                    )
                )
    return found


def test_each_row_that_the_reference_tests_has_a_test_here(project: Path, shared: Path) -> None:
    behaviours = (shared / "conformance/behaviours.md").read_text("utf-8")
    rows = {
        row
        for row, source in _ROW.findall(behaviours)
        if row[0] in SECTIONS and "T" in source.split()
    }
    assert len(rows) > 60
    missing = rows - named(project) - OTHERWISE.keys()
    assert sorted(missing) == []


@pytest.mark.parametrize("row", OTHERWISE)
def test_what_stands_in_a_row_s_place_is_said(row: str) -> None:
    assert OTHERWISE[row]
