"""``docker compose up`` records the example batch from inside a container."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from recorder.engine.connect import docker_host
from tests.recording.rig import EXAMPLES, eventually

COMPOSE = Path("/usr/libexec/docker/cli-plugins/docker-compose")


pytestmark = [pytest.mark.slow, pytest.mark.engine]


class Composed:
    """The project's compose file under a name of its own, over the engine that is used."""

    def __init__(self, project: Path, name: str, **environment: str) -> None:
        if not COMPOSE.exists():
            pytest.skip(f"no compose at {COMPOSE}: apt-get install docker-compose")
        host = docker_host()
        self.name = name
        self.environment = {
            **os.environ,
            "DOCKER_HOST": host,
            "RECORDER_SOCKET": host.removeprefix("unix://"),
            **environment,
        }
        self.command = [str(COMPOSE), "--project-name", name, "--file", "compose.yaml"]
        self.project = project

    def run(self, *arguments: str, seconds: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *arguments],
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def __enter__(self) -> Composed:
        return self

    def __exit__(self, *_: object) -> None:
        self.run("down", "--volumes", seconds=60).check_returncode()


def test_compose_up_records_the_example_batch(project: Path) -> None:
    with Composed(project, "recorder-test") as composed:
        ended = composed.run("up", "--exit-code-from", "recorder", seconds=110)
        assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
        assert "/out/assembled/L2-campaign-absent.md" in ended.stdout


@pytest.fixture
def directory() -> Iterator[Path]:
    """A batch's directory that the engine's own user reaches, as pytest's are not."""
    with tempfile.TemporaryDirectory(prefix="recorder-compose.") as made:
        Path(made).chmod(0o755)
        yield Path(shutil.copytree(EXAMPLES, Path(made) / "batch"))


def test_a_driver_that_a_cap_stopped_is_started_again_and_spends_nothing(
    project: Path, directory: Path
) -> None:
    spec = directory / "batch.yaml"
    # Less than what the corpus declares for one session.
    spec.write_text(spec.read_text() + "\ncaps: {batch_dollars: 0.01}\n")
    with Composed(project, "recorder-test-16", RECORDER_BATCH=str(directory)) as composed:
        composed.run("up", "--detach", seconds=60).check_returncode()
        client = docker.DockerClient(composed.environment["DOCKER_HOST"])
        try:
            (container,) = client.containers.list(
                all=True, filters={"label": f"com.docker.compose.project={composed.name}"}
            )

            def ended() -> bool:
                container.reload()
                status, restarts = container.status, int(container.attrs["RestartCount"])
                return restarts == 3 and status == "exited"

            eventually("it was started again three times", ended, 100, 0.2)
            assert container.attrs["State"]["ExitCode"] == 16
            stream, _ = container.get_archive("/out/ledger.jsonl")
            archive = io.BytesIO(b"".join(stream))
        finally:
            client.close()
    with tarfile.open(fileobj=archive) as files:
        member = files.extractfile("ledger.jsonl")
        assert member is not None
        kinds = [json.loads(line)["kind"] for line in member]
    assert not [kind for kind in kinds if kind.startswith("session:")]
