"""What a workspace's own servers say of their tools, asked on an engine before any session."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def examples(project: Path, tmp_path: Path) -> Path:
    shutil.copytree(project / "examples", tmp_path / "examples")
    return tmp_path / "examples"


def recorder(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "recorder.cli.app", *map(str, arguments)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def say(examples: Path, description: str) -> None:
    server = examples / "corpus" / "tools" / "documents_server.py"
    text = server.read_text()
    assert "Only documents of this status." in text
    server.write_text(text.replace("Only documents of this status.", description))


@pytest.mark.engine
def test_a_parameters_description_that_leaks_refuses_a_batch_before_any_session_e25(
    examples: Path, tmp_path: Path
) -> None:
    say(examples, "Such as unsigned.")
    out = tmp_path / "out"
    ended = recorder("batch", "run", examples / "batch.yaml", "--out", out)
    assert ended.returncode == 9, ended.stderr
    assert "mcp:list_documents holds 'unsigned'" in ended.stderr
    assert not list(out.glob("sessions/*"))


@pytest.mark.engine
def test_the_dry_run_and_the_seal_list_the_tools_of_a_server_p11_e25(
    examples: Path, tmp_path: Path
) -> None:
    ended = recorder("batch", "plan", examples / "batch.yaml", "--tools")
    assert ended.returncode == 0, ended.stderr
    assert (
        "tree L1 campaign present: its servers list list_documents, read_document" in ended.stdout
    )
    say(examples, "Such as unsigned.")
    corpus, tree = examples / "corpus", tmp_path / "tree"
    assert recorder("arm", "campaign", "present", "--corpus", corpus, "--out", tree).returncode == 0
    ended = recorder("seal", "--leak", tree, "PROBE-EX-outside", "--corpus", corpus)
    assert ended.returncode == 9, ended.stderr
    assert ended.stdout == "leak PROBE-EX-outside mcp:list_documents unsigned\n"


@pytest.mark.engine
def test_a_server_that_lists_no_tool_is_eight_p20(examples: Path) -> None:
    server = examples / "corpus" / "tools" / "documents_server.py"
    server.write_text("raise SystemExit(3)\n")
    ended = recorder("batch", "plan", examples / "batch.yaml", "--tools")
    assert ended.returncode == 8, ended.stderr
    assert "documents lists no tool" in ended.stderr
    assert "Traceback" not in ended.stderr
