"""Whose engine is used, and what is said when it does not answer."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recorder.engine import connect, rootless
from recorder.refusal import ExitCode, Refusal


@pytest.fixture
def no_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A user who names no engine; their docker configuration directory."""
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("no_choice")
def test_docker_host_wins() -> None:
    chosen = connect.user_choice({"DOCKER_HOST": "unix:///nowhere/docker.sock"})
    assert chosen == connect.Choice("unix:///nowhere/docker.sock", "DOCKER_HOST")


@pytest.mark.usefixtures("no_choice")
def test_the_default_context_chooses_nothing() -> None:
    assert connect.user_choice({}) is None


def test_a_context_in_use_is_the_users_choice(no_choice: Path) -> None:
    (no_choice / "config.json").write_text(json.dumps({"currentContext": "elsewhere"}))
    # The directory of a context is the digest of its name.
    digest = hashlib.sha256(b"elsewhere").hexdigest()
    folder = no_choice / "contexts" / "meta" / digest
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text(
        json.dumps(
            {
                "Name": "elsewhere",
                "Metadata": {},
                "Endpoints": {"docker": {"Host": "tcp://engine.test:2375", "SkipTLSVerify": False}},
            }
        )
    )
    chosen = connect.user_choice({})
    assert chosen == connect.Choice("tcp://engine.test:2375", "docker context")


@pytest.mark.usefixtures("no_choice")
def test_a_context_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(Refusal, match="elsewhere") as refused:
        connect.user_choice({"DOCKER_CONTEXT": "elsewhere"})
    assert refused.value.code is ExitCode.MISSING


def test_an_engine_that_is_down_is_3_and_names_the_address(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as refused:
        connect.connect(f"unix://{tmp_path}/docker.sock")
    assert refused.value.code is ExitCode.MISSING
    assert f"{tmp_path}/docker.sock" in str(refused.value)
    assert len(refused.value.reasons) == 1
    assert "\n" not in refused.value.reasons[0]


def test_a_socket_that_nobody_serves_does_not_answer(tmp_path: Path) -> None:
    (tmp_path / "docker.sock").touch()
    assert not rootless.answers(f"unix://{tmp_path}/docker.sock")


def test_the_command_of_set_up_says_one_line_and_its_code(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "recorder.engine", "start"],
        env={**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/docker.sock"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == ExitCode.MISSING
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("recorder: ")
