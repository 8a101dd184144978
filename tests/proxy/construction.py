"""The construction that the live tests speak to: sidecars, a provider and a session's place.

The provider is a container on an internal network that answers to the real one's name; the
session's place is a container with no network and the socket's volume, as a session has it.
"""

from __future__ import annotations

import base64
import io
import json
import re
import selectors
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy.egress import Reading, read
from recorder.engine.client import Engine
from recorder.images.build import image_tag
from recorder.rehearsal.certificates import make_authority
from recorder.session.attach import Attachment, attach
from recorder.session.container import EGRESS_LOG, sidecar_container
from recorder.session.frames import STDOUT

HOST = "api.anthropic.com"
PLACEHOLDER = "sk-placeholder-of-the-session"
SECRET = "sk-ant-real-credential-0123456789"
LABELS = {"recorder.role": "check"}
INSIDE = Path(__file__).parent / "inside"
PROXY = Path(__file__).parent.parent.parent / "proxy"

CONNECT = f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\n\r\n".encode()
ESTABLISHED = b"\r\n\r\n"


@dataclass
class Lines:
    """A container's standard output as JSON lines, and its standard input."""

    attachment: Attachment
    buffer: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)

    def tell(self, value: object) -> None:
        self.attachment.send(json.dumps(value).encode() + b"\n")

    def next(self, seconds: float = 20.0) -> dict[str, Any] | None:
        """The next line; None where the container ended or said nothing in time."""
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self.attachment, selectors.EVENT_READ)
            while b"\n" not in self.buffer:
                left = deadline - time.monotonic()
                if left <= 0 or self.attachment.ended:
                    return None
                if self.attachment.pending() or selector.select(left):
                    for stream, piece in self.attachment.read():
                        (self.buffer if stream == STDOUT else self.errors).extend(piece)
        line, _, rest = bytes(self.buffer).partition(b"\n")
        self.buffer[:] = rest
        value = json.loads(line)
        assert isinstance(value, dict)
        return value


@dataclass
class Exchange:
    """What came of one connection: what was read at each reading step, when, and how it ended."""

    received: list[bytes]
    times: list[float]
    error: str | None

    @property
    def text(self) -> bytes:
        return b"".join(self.received)


@dataclass
class Agent:
    """The session's place."""

    lines: Lines
    asked: int = 0

    def run(self, steps: Sequence[Mapping[str, Any]]) -> Exchange:
        return self.run_all([steps])[0]

    def run_all(self, connections: Sequence[Sequence[Mapping[str, Any]]]) -> list[Exchange]:
        """Several connections at once."""
        first = self.asked
        for steps in connections:
            self.lines.tell({"number": self.asked, "steps": list(steps)})
            self.asked += 1
        found: dict[int, Exchange] = {}
        for _ in connections:
            answer = self.lines.next(60)
            assert answer is not None, bytes(self.lines.errors)
            found[answer["number"] - first] = Exchange(
                [base64.b64decode(each) for each in answer["received"]],
                answer["times"],
                answer["error"],
            )
        return [found[number] for number in range(len(connections))]


@dataclass
class Provider:
    """What the provider saw."""

    lines: Lines
    certificate: str
    marks: int = 0

    def seen(self) -> list[dict[str, Any]]:
        """Everything that reached it since the last call. A request's line comes before its
        answer, and all of them before the mark that is asked for here."""
        self.marks += 1
        self.lines.tell({"mark": self.marks})
        found = []
        while (line := self.lines.next()) is not None:
            if line.get("mark") == self.marks:
                return found
            found.append(line)
        raise AssertionError(bytes(self.lines.errors))


@dataclass
class RunningSidecar:
    engine: Engine
    container: str
    lines: Lines
    said: dict[str, Any] | None

    @property
    def certificate(self) -> str:
        assert self.said is not None
        return str(self.said["ca"])

    def log(self) -> list[dict[str, Any]]:
        """The lines written so far."""
        data = self.engine.get_file(self.container, EGRESS_LOG, 1 << 28) or b""
        return [json.loads(line) for line in data.splitlines()]

    def decisions(self, since: int, count: int) -> list[dict[str, Any]]:
        """The decisions after the first `since` lines, once there are `count` (or 20 s passed):
        the line of a connection's end comes after the end."""
        return self.of_kind("decision", since, count)

    def of_kind(self, kind: str, since: int, count: int) -> list[dict[str, Any]]:
        """As `decisions`, for another kind of line."""
        deadline = time.monotonic() + 20
        while True:
            found = [line for line in self.log()[since:] if line["kind"] == kind]
            if len(found) >= count or time.monotonic() > deadline:
                return found

    def end(self) -> tuple[int, float, Reading]:
        """End its lifeline: its status, how long it took, and its log."""
        begun = time.monotonic()
        self.lines.attachment.close()
        status = self.engine.wait(self.container, 10)
        took = time.monotonic() - begun
        data = self.engine.get_file(self.container, EGRESS_LOG, 1 << 28) or b""
        return status, took, read(data.splitlines(keepends=True))


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def send(data: bytes) -> dict[str, Any]:
    return {"send": b64(data)}


def until(data: bytes | None, seconds: float = 10) -> dict[str, Any]:
    return {"read": None if data is None else b64(data), "seconds": seconds}


def tunnel(name: str | None = HOST, ca: str | None = None, *alpn: str) -> list[dict[str, Any]]:
    """The steps that every well-behaved connection begins with."""
    return [
        send(CONNECT),
        until(ESTABLISHED),
        {"tls": {"name": name, "ca": ca, "alpn": list(alpn)}},
    ]


def request(
    scenario: str = "",
    *,
    target: str = "/v1/messages?beta=true",
    method: str = "POST",
    remove: Sequence[str] = (),
    headers: Sequence[tuple[str, str]] = (),
    body: bytes | None = None,
    version: str = "HTTP/1.1",
    **members: Any,
) -> bytes:
    """A request as the harness makes it, with changes. `headers` come in addition."""
    if body is None:
        document = {"model": "claude-opus-5", "max_tokens": 5, "messages": [], "stream": True}
        body = json.dumps(
            {**document, "metadata": {"user_id": scenario}, **members}, separators=(",", ":")
        ).encode()
    usual = [
        ("Host", HOST),
        ("x-api-key", PLACEHOLDER),
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
        ("anthropic-version", "2023-06-01"),
        ("X-Not-Named", "dropped"),
        ("Accept-Encoding", "gzip, br"),
    ]
    kept = [pair for pair in usual if pair[0].lower() not in remove]
    lines = [f"{method} {target} {version}", *(f"{n}: {v}" for n, v in [*kept, *headers])]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


@contextmanager
def network(engine: Engine, name: str) -> Iterator[str]:
    engine.create_network(name, LABELS, internal=True)
    try:
        yield name
    finally:
        engine.remove_network(name)


@contextmanager
def running(engine: Engine, name: str, configuration: dict[str, Any]) -> Iterator[Lines]:
    """A container with its standard streams attached before it starts."""
    container = engine.create_container(name, configuration)
    try:
        with attach(engine.docker_host, container) as attachment:
            engine.start(container)
            yield Lines(attachment)
    finally:
        engine.remove_container(container)


def script(source: str, **host: Any) -> dict[str, Any]:
    """A container of the sidecar's image in which one of the programs of `inside` runs."""
    return {
        "Image": image_tag("proxy"),
        "Entrypoint": ["/usr/bin/python3", "-I", "-c", (INSIDE / source).read_text()],
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "OpenStdin": True,
        "StdinOnce": True,
        "Labels": LABELS,
        "HostConfig": {"LogConfig": {"Type": "none", "Config": {}}, **host},
    }


@contextmanager
def provider(engine: Engine, name: str, on: str) -> Iterator[Provider]:
    authority = make_authority(HOST)
    configuration = script("provider.py", NetworkMode=on)
    configuration["User"] = "0:0"
    configuration["NetworkingConfig"] = {"EndpointsConfig": {on: {"Aliases": [HOST]}}}
    with running(engine, name, configuration) as lines:
        lines.tell({"certificate": authority.certificate_pem, "key": authority.key_pem})
        assert lines.next() == {"event": "ready"}, bytes(lines.errors)
        yield Provider(lines, authority.ca_pem)


@contextmanager
def agent(engine: Engine, name: str, socket_volume: str) -> Iterator[Agent]:
    mount = {
        "Type": "volume",
        "Source": socket_volume,
        "Target": "/run/recorder",
        "ReadOnly": True,
        "VolumeOptions": {"NoCopy": True},
    }
    configuration = script("agent.py", NetworkMode="none", Mounts=[mount])
    configuration["User"] = "1000:1000"
    with running(engine, name, configuration) as lines:
        yield Agent(lines)


def configuration(upstream_ca: str | None, **changes: Any) -> dict[str, Any]:
    return {
        "session": "session-1",
        "policy": None,
        "placeholder": PLACEHOLDER,
        "credential": {"kind": "api_key", "value": SECRET},
        "upstream_ca": upstream_ca,
        **changes,
    }


@contextmanager
def sidecar(
    engine: Engine,
    name: str,
    on: str,
    told: Mapping[str, Any] | bytes,
    archive: bytes | None = None,
) -> Iterator[RunningSidecar]:
    """A sidecar, ready or failed. With an archive, the copy of the project's code in it runs."""
    volumes = (f"{name}-socket", f"{name}-egress")
    for volume in volumes:
        engine.create_volume(volume, LABELS)
    try:
        body = sidecar_container(image_tag("proxy"), LABELS, *volumes, on)
        if archive is not None:
            body["Entrypoint"] = ["/usr/bin/python3", "-I", "/opt/changed/proxy/main.py"]
        container = engine.create_container(name, body)
        try:
            if archive is not None:
                engine.put(container, "/opt", iter([archive]))
            with attach(engine.docker_host, container) as attachment:
                engine.start(container)
                lines = Lines(attachment)
                if isinstance(told, bytes):
                    attachment.send(told)
                else:
                    lines.tell(told)
                yield RunningSidecar(engine, container, lines, lines.next())
        finally:
            engine.remove_container(container)
    finally:
        for volume in volumes:
            engine.remove_volume(volume)


def changed_code(
    changes: Mapping[str, str | None] | None = None, *, modified: int = 1_700_000_000
) -> bytes:
    """A tar of the sidecar's code as it would be with some files changed, or missing (None)."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for path in sorted(PROXY.rglob("*")):
            name = path.relative_to(PROXY).as_posix()
            if path.suffix not in (".py", ".yaml"):
                continue
            text = (changes or {}).get(name, path.read_text())
            if text is None:
                continue
            entry = tarfile.TarInfo(f"changed/proxy/{name}")
            data = text.encode()
            entry.size, entry.mtime, entry.mode = len(data), modified, 0o644
            archive.addfile(entry, io.BytesIO(data))
    return made.getvalue()


def hooks() -> list[str]:
    """The names of the hooks, as the addon's own text has them."""
    text = (PROXY / "addon.py").read_text()
    section = text[
        text.index("    # Hooks, in the order") : text.index("    # Helpers of the hooks")
    ]
    return re.findall(r"^    def ([a-z_]+)\(self, ", section, re.MULTILINE)


def with_raising(hook: str) -> str:
    """The addon's text with one hook that raises before it does anything."""
    text = (PROXY / "addon.py").read_text()
    changed, count = re.subn(
        rf"(    def {hook}\(self, [^)]*\) -> None:\n)",
        r'\1        raise RuntimeError("changed by a test")\n',
        text,
    )
    assert count == 1
    return changed
