"""The README's commands run as written, and what it says of the demo is what the demo prints."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.docs.blocks import blocks_of, run_block


@pytest.mark.engine
def test_the_readmes_commands_run_as_written(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    commands = [block for block in blocks_of(project / "README.md") if not block.startswith("make")]
    assert commands
    out = tmp_path_factory.mktemp("readme")
    for block in commands:
        ended = run_block(project, block, {**os.environ, "OUT": str(out)})
        assert ended.returncode == 0, ended.stderr
    assert (out / "sessions" / "rehearsed" / "record.md").exists()


def test_the_readme_names_only_targets_and_files_that_are_there(project: Path) -> None:
    text = (project / "README.md").read_text()
    makefile = (project / "Makefile").read_text()
    for target in set(re.findall(r"make ([a-z-]+)", text.replace("\n", " "))):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (project / link).exists(), link


def test_every_exit_code_is_documented(project: Path) -> None:
    from recorder.refusal import ExitCode

    text = (project / "docs" / "exit-codes.md").read_text()
    documented = {int(number) for number in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    assert {int(code) for code in ExitCode} <= documented
