"""``docker compose up`` records the example batch from inside a container."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from recorder.engine.connect import docker_host

COMPOSE = Path("/usr/libexec/docker/cli-plugins/docker-compose")


@pytest.mark.slow
@pytest.mark.engine
def test_compose_up_records_the_example_batch(project: Path) -> None:
    if not COMPOSE.exists():
        pytest.skip(f"no compose at {COMPOSE}: apt-get install docker-compose")
    host = docker_host()
    environment = {
        **os.environ,
        "DOCKER_HOST": host,
        "RECORDER_SOCKET": host.removeprefix("unix://"),
    }
    command = [str(COMPOSE), "--project-name", "recorder-test", "--file", "compose.yaml"]
    try:
        ended = subprocess.run(
            [*command, "up", "--exit-code-from", "recorder"],
            cwd=project,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
        assert "/out/assembled/L2-campaign-absent.md" in ended.stdout
    finally:
        subprocess.run(
            [*command, "down", "--volumes"],
            cwd=project,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=True,
        )
