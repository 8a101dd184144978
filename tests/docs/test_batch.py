"""The commands of ``docs/batch.md`` run as written, and its tables are the program's own."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from recorder.batch.halts import EXPIRY, FAILURES, RULES
from recorder.batch.spec import spec_schema
from tests.docs.blocks import blocks_of, run_block


def text_of(project: Path) -> str:
    return (project / "docs" / "batch.md").read_text()


@pytest.mark.engine
@pytest.mark.timeout(300)
def test_the_commands_run_as_written(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    blocks = blocks_of(project / "docs" / "batch.md")
    assert len(blocks) == 2
    out = tmp_path_factory.mktemp("batch-doc")
    said = []
    for block in blocks:
        ended = run_block(project, block, {**os.environ, "OUT": str(out)})
        assert ended.returncode == 0, ended.stderr
        said.append((ended.stdout, ended.stderr))
    (stopped, why), (accepted, waited) = said
    assert "ended: 1 of 12 sessions over, 1 recorded" in stopped
    assert "1 of 12 sessions are over, 11 remain" in why
    assert "accepted: " in accepted
    assert "the canary of 2 sessions is over and waits" in waited
    assert len(list((out / "batch" / "sessions").glob("*/record.md"))) == 12
    assert len(list((out / "batch" / "assembled").glob("*.md"))) == 2


def test_every_member_of_the_file_is_in_the_table(project: Path) -> None:
    table = text_of(project).partition("## The file")[2].partition("## ")[0]
    first = "".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE))
    assert set(re.findall(r"`([a-z_]+)`", first)) == set(spec_schema()["properties"]) - {
        "session_dollars"
    }


def test_every_halt_is_in_the_table_with_what_waiting_does(project: Path) -> None:
    table = text_of(project).partition("| halt |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.*?) \| .* \| (.*?) \|$", table, re.MULTILINE)
    does = {
        "waits for the reset": "at its reset",
        "asks again": "by itself",
        "looks each minute": "once renewed",
        "stops": "by a person",
    }
    told = {name: does[what] for names, what in rows for name in re.findall(r"`(.*?)`", names)}
    assert told == {rule.name: rule.passes for rule in (*RULES, EXPIRY, FAILURES)}
