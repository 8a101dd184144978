"""The README's commands run as written, and what it says of the demo is what the demo prints."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(project: Path) -> list[str]:
    return BLOCK.findall((project / "README.md").read_text())


@pytest.mark.engine
def test_the_readmes_commands_run_as_written(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    commands = [block for block in blocks(project) if not block.startswith("make")]
    assert commands
    out = tmp_path_factory.mktemp("readme")
    for block in commands:
        ended = subprocess.run(
            ["bash", "-euc", block],
            cwd=project,
            env={**os.environ, "OUT": str(out)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
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
