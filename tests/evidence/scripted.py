"""Records real sessions against the shared scripted provider, which stands behind the sidecar.

The whole construction runs as it does for a measurement; only the provider is a script. Which
scenario a session gets is named by the end of the credential that its sidecar holds. As a
program: ``python -m tests.evidence.scripted DIRECTORY [KIND ...]``.
"""

from __future__ import annotations

import io
import json
import os
import selectors
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from recorder.batch.batch import image_id
from recorder.engine.client import Engine, open_engine
from recorder.engine.connect import docker_host
from recorder.rehearsal.certificates import make_authority
from recorder.session.attach import attach
from recorder.session.driver import Order, Session, Watched
from recorder.session.harness import (
    PLACEHOLDER_KEY,
    WORKSPACE,
    command_line,
    environment,
)
from recorder.session.leftovers import DRIVER_LABEL, driver_identity, driver_name
from recorder.session.sidecar import Credential, Upstream
from recorder.session.upstream import PROVIDER_HOST
from recorder.workspace.packing import pack

TASK = "Read input.txt, add alpha and beta, write out/report.md, and end with 'ANSWER: <total>'."
INPUT = "# input\nalpha = 30\nbeta = 12\n"
READY_SECONDS = 20.0
API_LOG = "/tmp/api.jsonl"
API_LOG_LIMIT = 1 << 30


@dataclass(frozen=True)
class Kind:
    """One kind of session. ``files``: what its workspace holds beside input.txt."""

    name: str
    scenario: str
    files: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    servers: tuple[str, ...] = ()
    max_turns: int | None = None
    model: str = "claude-sonnet-4-5"
    timeout: float = 60.0


@dataclass(frozen=True)
class Recording:
    """What one session left: its directory holds raw.jsonl, egress.jsonl, stderr.log."""

    kind: Kind
    directory: Path
    watched: Watched

    @property
    def raw(self) -> list[bytes]:
        return (self.directory / "raw.jsonl").read_bytes().splitlines(keepends=True)

    @property
    def egress(self) -> list[bytes]:
        return (self.directory / "egress.jsonl").read_bytes().splitlines(keepends=True)


def _archive(files: Mapping[str, bytes]) -> Iterator[bytes]:
    gathered = io.BytesIO()
    with tarfile.open(fileobj=gathered, mode="w") as archive:
        for path, data in files.items():
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
    yield gathered.getvalue()


@dataclass
class ScriptedProvider:
    """A running provider: where sidecars reach it, and the requests it logged."""

    engine: Engine
    container: str
    upstream: Upstream

    def log(self) -> list[dict[str, object]]:
        data = self.engine.get_file(self.container, API_LOG, API_LOG_LIMIT) or b""
        return [json.loads(line) for line in data.splitlines()]


@contextmanager
def scripted_provider(engine: Engine, name: str, script: str) -> Iterator[ScriptedProvider]:
    """A script on an internal network of its own, over TLS as the provider's host."""
    labels = {DRIVER_LABEL: driver_identity()}
    network = f"{name}-scripted"
    authority = make_authority(PROVIDER_HOST)
    engine.create_network(network, {**labels, "recorder.role": "network"}, internal=True)
    container: str | None = None
    try:
        container = engine.create_container(
            f"{name}-scripted",
            {
                "Image": image_id(engine, "recorder"),
                "Entrypoint": ["/usr/bin/python3", "-u", "/opt/scripted_provider.py"],
                "Cmd": [
                    *("--host", "0.0.0.0", "--port", "443", "--log", API_LOG),
                    *("--tls-cert", "/opt/certificate.pem", "--tls-key", "/opt/key.pem"),
                ],
                "AttachStdin": True,
                "AttachStdout": True,
                "AttachStderr": True,
                "OpenStdin": True,
                "StdinOnce": True,
                "Labels": {**labels, "recorder.role": "provider"},
                "HostConfig": {
                    "NetworkMode": network,
                    "CapDrop": ["ALL"],
                    "CapAdd": ["NET_BIND_SERVICE"],
                    "SecurityOpt": ["no-new-privileges"],
                    "LogConfig": {"Type": "none", "Config": {}},
                },
                "NetworkingConfig": {"EndpointsConfig": {network: {"Aliases": [PROVIDER_HOST]}}},
            },
        )
        engine.put(
            container,
            "/",
            _archive(
                {
                    "/opt/scripted_provider.py": script.encode(),
                    "/opt/certificate.pem": authority.certificate_pem.encode(),
                    "/opt/key.pem": authority.key_pem.encode(),
                }
            ),
        )
        with attach(engine.docker_host, container) as attachment:
            engine.start(container)
            said = bytearray()
            deadline = time.monotonic() + READY_SECONDS
            with selectors.DefaultSelector() as selector:
                selector.register(attachment, selectors.EVENT_READ)
                while b"listening" not in said:
                    if attachment.ended or time.monotonic() > deadline:
                        raise RuntimeError(f"the scripted provider did not start: {said!r}")
                    if attachment.pending() or selector.select(0.5):
                        for _, piece in attachment.read():
                            said += piece
            yield ScriptedProvider(engine, container, Upstream(network, authority.ca_pem))
    finally:
        if container is not None:
            engine.remove_container(container)
        engine.remove_network(network)


def record_kind(
    engine: Engine, provider: ScriptedProvider, kind: Kind, directory: Path, *, uid: int = 1000
) -> Recording:
    """Run one session of a kind to its end; its files lie in ``directory``, which is made."""
    directory.mkdir(parents=True)
    tree = Path(tempfile.mkdtemp(prefix="recorder-kind."))
    try:
        for name, text in {"input.txt": INPUT, **kind.files}.items():
            path = tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755 if text.startswith("#!") else 0o644)
        configuration = f"{WORKSPACE}/.mcp.json" if ".mcp.json" in kind.files else None
        order = Order(
            name=f"{driver_name()}-{directory.name}",
            session_image=image_id(engine, "session"),
            sidecar_image=image_id(engine, "proxy"),
            argv=command_line(
                TASK,
                servers=kind.servers,
                mcp_configuration=configuration,
                model=kind.model,
                max_turns=kind.max_turns,
            ),
            environment={**environment(), **kind.environment},
            workspace=lambda owner: pack(tree, owner, owner, prefix="workspace"),
            upstream=provider.upstream,
            credential=Credential("api_key", f"sk-ant-api03-fake-{kind.scenario}"),
            placeholder=PLACEHOLDER_KEY,
            labels={DRIVER_LABEL: driver_identity(), "recorder.session": directory.name},
            directory=directory,
            uid=uid,
            timeout=kind.timeout,
        )
        session = Session(engine, order)
        try:
            watched = session.run()
        finally:
            session.remove()
    finally:
        shutil.rmtree(tree)
    return Recording(kind, directory, watched)


def shared_tool(name: str) -> Path:
    project = Path(__file__).resolve().parent.parent.parent
    shared = Path(os.environ.get("RECORDER_SHARED", project.parent / "shared"))
    return shared / "tools" / name


def main() -> None:
    from tests.evidence.kinds import KINDS
    from tests.evidence.scenarios import extended_script

    out = Path(sys.argv[1])
    names = sys.argv[2:] or list(KINDS)
    engine = open_engine(docker_host())
    try:
        with scripted_provider(engine, driver_name(), extended_script()) as provider:
            for name in names:
                began = time.monotonic()
                recording = record_kind(engine, provider, KINDS[name], out / name)
                status = recording.watched.exit_status
                print(
                    f"{name:28} exit {status} ended {recording.watched.ended} "
                    f"{len(recording.raw)} lines {time.monotonic() - began:.1f} s",
                    flush=True,
                )
            if os.environ.get("KEEP_API_LOG"):
                with (out / "api.jsonl").open("w") as file:
                    for entry in provider.log():
                        file.write(json.dumps(entry) + "\n")
    finally:
        engine.close()


if __name__ == "__main__":
    main()
