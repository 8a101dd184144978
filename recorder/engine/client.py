"""The few calls the recorder makes of an engine, typed; nothing is decided here.

``docker_host`` is kept because an attach connection is opened by hand (recorder/session/attach.py).
Errors are docker's own (``docker.errors.APIError``, ``NotFound``) and ``requests`` ones for an
engine that went away.
"""

from __future__ import annotations

import hashlib
import io
import math
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, cast

import docker
from docker.errors import APIError, DockerException, NotFound
from requests.exceptions import RequestException

from recorder.engine.rootless import reach
from recorder.refusal import ExitCode, Refusal


class _Pieces:
    """A stream in pieces as a file that only reads forward."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def read(self, size: int) -> bytes:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._rest = piece
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken


@dataclass(frozen=True)
class Engine:
    """One engine. Thread-safe only across instances: each thread opens its own."""

    docker_host: str
    api: docker.APIClient

    def close(self) -> None:
        self.api.close()

    def create_container(self, name: str, request: Mapping[str, object]) -> str:
        create = cast("Callable[..., dict[str, str]]", self.api.create_container_from_config)
        return create(dict(request), name)["Id"]

    def start(self, container: str) -> None:
        self.api.start(container)

    def kill(self, container: str, signal: str = "KILL") -> None:
        try:
            self.api.kill(container, signal)
        except APIError as error:
            # 409: it ended by itself in the meantime, which is what was asked for.
            if error.status_code not in (404, 409):
                raise

    def wait(self, container: str, timeout: float) -> int:
        """The container's exit status, once it has ended."""
        answer = self.api.wait(container, timeout=math.ceil(timeout))
        return int(answer["StatusCode"])

    def inspect(self, container: str) -> dict[str, Any]:
        return cast("dict[str, Any]", self.api.inspect_container(container))

    def put(self, container: str, path: str, archive: Iterable[bytes]) -> None:
        """Unpack a tar stream at a path of a container that need not run."""
        self.api.put_archive(container, path, archive)

    def get(self, container: str, path: str) -> Iterator[bytes]:
        """A path of a container as a tar stream. NotFound where there is no such path."""
        stream, _ = self.api.get_archive(container, path, chunk_size=1 << 20)
        return cast("Iterator[bytes]", stream)

    def get_file(self, container: str, path: str, limit: int) -> bytes | None:
        """One regular file's bytes; None where there is none, or it is over the limit."""
        try:
            stream = self.get(container, path)
        except NotFound:
            # Absent is an answer here: the caller says what it means.
            return None
        gathered = bytearray()
        for piece in stream:
            gathered += piece
            if len(gathered) > limit + 10_240:
                return None
        with tarfile.open(fileobj=io.BytesIO(bytes(gathered))) as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isreg() else None
                if file is not None and member.size <= limit:
                    return file.read()
        return None

    def digest_of_file(self, container: str, path: str) -> str | None:
        """``sha256:<hex>`` of one regular file, however large; None where there is none."""
        try:
            stream = self.get(container, path)
        except NotFound:
            # Absent is an answer here: the caller says what it means.
            return None
        with tarfile.open(fileobj=cast("IO[bytes]", _Pieces(stream)), mode="r|") as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isreg() else None
                if file is not None:
                    whole = hashlib.sha256()
                    while piece := file.read(1 << 20):
                        whole.update(piece)
                    return f"sha256:{whole.hexdigest()}"
        return None

    def remove_container(self, container: str) -> None:
        try:
            self.api.remove_container(container, v=True, force=True)
        except NotFound:
            # Gone already, which is what was asked for.
            return

    def create_volume(self, name: str, labels: Mapping[str, str]) -> None:
        self.api.create_volume(name, labels=dict(labels))

    def remove_volume(self, name: str) -> None:
        try:
            self.api.remove_volume(name, force=True)
        except NotFound:
            # Gone already, which is what was asked for.
            return

    def create_network(self, name: str, labels: Mapping[str, str], *, internal: bool) -> str:
        answer = self.api.create_network(
            name,
            driver="bridge",
            labels=dict(labels),
            internal=internal,
            options={"com.docker.network.bridge.enable_icc": "true" if internal else "false"},
        )
        return answer["Id"]

    def remove_network(self, network: str) -> None:
        try:
            self.api.remove_network(network)
        except NotFound:
            # Gone already, which is what was asked for.
            return

    def connect_network(self, network: str, container: str, aliases: list[str]) -> None:
        self.api.connect_container_to_network(container, network, aliases=aliases)

    def containers(self, label: str) -> list[dict[str, Any]]:
        found = self.api.containers(all=True, filters={"label": label})
        return cast("list[dict[str, Any]]", found)

    def volumes(self, label: str) -> list[dict[str, Any]]:
        found = self.api.volumes(filters={"label": label})["Volumes"]
        return cast("list[dict[str, Any]]", found or [])

    def networks(self, label: str) -> list[dict[str, Any]]:
        return cast("list[dict[str, Any]]", self.api.networks(filters={"label": label}))

    def image_id(self, tag: str) -> str | None:
        try:
            inspect = cast("Callable[[str], dict[str, str]]", self.api.inspect_image)
            return inspect(tag)["Id"]
        except NotFound:
            # Absent is an answer here: the caller names the image and how to build it.
            return None

    def facts(self) -> dict[str, str]:
        """What the engine is and what it runs on, by name; nothing that names a user or a path."""
        info = self.api.info()
        version = self.api.version()
        facts = {
            name: str(info.get(member, ""))
            for name, member in (
                ("engine", "ServerVersion"),
                ("kernel", "KernelVersion"),
                ("system", "OperatingSystem"),
                ("architecture", "Architecture"),
                ("storage", "Driver"),
                ("cgroup driver", "CgroupDriver"),
                ("cgroup version", "CgroupVersion"),
                ("runtime", "DefaultRuntime"),
            )
        }
        facts["security"] = " ".join(sorted(map(str, info.get("SecurityOptions") or ())))
        for component in version.get("Components") or ():
            facts.setdefault(str(component.get("Name")).lower(), str(component.get("Version")))
        return dict(sorted(facts.items()))


def open_engine(docker_host: str, timeout: float = 120.0) -> Engine:
    """A connection of its own to the engine, with the API version both speak.

    Refusal 3 where no engine answers there.
    """
    try:
        reach(docker_host)
        api = docker.APIClient(base_url=docker_host, version="auto", timeout=int(timeout))
    except (DockerException, RequestException, OSError) as error:
        raise Refusal(
            ExitCode.MISSING,
            f"no engine answers at {docker_host}: run `recorder engine start`, or set DOCKER_HOST "
            "to one that runs",
        ) from error
    return Engine(docker_host, api)
