"""Runs one session and watches it from outside: the only room that touches a live session.

Everything it reads of the stream comes from the attach pipe, opened before the start. It decides
nothing about what a session meant; it says what happened (``Watched``) and keeps the bytes.
"""

from __future__ import annotations

import io
import json
import os
import selectors
import shutil
import stat
import tarfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, Literal

from docker.errors import DockerException
from requests.exceptions import RequestException

from recorder.durable import write_durable
from recorder.engine.client import Engine
from recorder.refusal import ExitCode, Refusal
from recorder.session.attach import Attachment, attach
from recorder.session.container import (
    SESSION_UID,
    SOCKET,
    Limits,
    forwarder_uid,
    session_container,
)
from recorder.session.credentials import session_files
from recorder.session.frames import STDOUT, FrameError
from recorder.session.harness import (
    CERTIFICATE,
    CONFIGURATION_DIRECTORY,
    LOG_DIRECTORY,
    MANAGED_SETTINGS,
    PROXY_PORT,
    WORKSPACE,
    Form,
    managed_settings,
    messaging_paths,
)
from recorder.session.sidecar import (
    Credential,
    Sidecar,
    Upstream,
    end_sidecar,
    remove_sidecar,
    start_sidecar,
    wait_ready,
)

SESSION_FILE = "/etc/recorder/session.json"
OUTCOME_FILE = "/opt/recorder/outcome.json"
END_SECONDS = 15.0
WATCH_SECONDS = 0.5
OUTCOME_LIMIT = 1 << 16

Ended = Literal["harness", "deadline", "disk", "sidecar", "stream", "halted"]


@dataclass(frozen=True)
class Order:
    """One session to run. ``name`` becomes part of the containers' names and must be unique.

    ``dollars`` is the session's bound by ``prices``: a model to its rates as decimal text.

    ``workspace`` gives the tree as a tar stream whose names lie under ``workspace/`` and whose
    owner is ``uid``; ``timeout`` is in seconds; ``disk_floor`` in free bytes under ``directory``.
    """

    name: str
    session_image: str
    sidecar_image: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    workspace: Callable[[int], Iterable[bytes]]
    upstream: Upstream
    credential: Credential
    placeholder: str
    labels: Mapping[str, str]
    directory: Path
    policy: str | None = None
    uid: int = SESSION_UID
    timeout: float = 1800.0
    limits: Limits = field(default_factory=Limits)
    disk_floor: int = 1 << 30
    dollars: Decimal | None = None
    prices: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Times:
    """Seconds of each step, by a monotonic clock."""

    sidecar: float = 0.0
    create: float = 0.0
    start: float = 0.0
    first_line: float | None = None
    session: float = 0.0
    collect: float = 0.0


@dataclass(frozen=True)
class Watched:
    """What was seen of a session. ``outcome`` is the guard's own word, None where it left none."""

    ended: Ended
    exit_status: int | None
    outcome: Mapping[str, Any] | None
    sidecar: Mapping[str, str]
    session_inspect: Mapping[str, Any]
    sidecar_inspect: Mapping[str, Any]
    egress_whole: bool
    times: Times
    stdout_bytes: int
    stderr_bytes: int


class Session:
    """A session in three steps, so that a batch can start the sidecar ahead of its turn.

    ``prepare`` starts the sidecar; ``run`` runs the session to its end and keeps its streams;
    ``remove`` takes every container and volume away, and may be called at any time.
    """

    def __init__(self, engine: Engine, order: Order) -> None:
        self.engine = engine
        self.order = order
        self.sidecar: Sidecar | None = None
        self.container: str | None = None
        self._started = 0.0
        # From the start until the egress log is kept: what says what it sent is not removed.
        self._owed = False

    def prepare(self) -> Sidecar:
        """Start the sidecar; it becomes ready while the caller does something else."""
        self._started = time.monotonic()
        order = self.order
        self.sidecar = sidecar = start_sidecar(
            self.engine,
            name=order.name,
            image=order.sidecar_image,
            labels={**order.labels, "recorder.role": "sidecar"},
            upstream=order.upstream,
            configuration={
                "session": order.labels.get("recorder.session", order.name),
                "policy": order.policy,
                "placeholder": order.placeholder,
                "credential": {"kind": order.credential.kind, "value": order.credential.value},
                "upstream_ca": order.upstream.certificate,
                "copied": order.credential.copied,
                "dollars": None if order.dollars is None else str(order.dollars),
                "prices": order.prices,
            },
        )
        return sidecar

    def run(
        self,
        before_start: Callable[[], None] | None = None,
        halt: threading.Event | None = None,
    ) -> Watched:
        """Run to the end; raw.jsonl, stderr.log and egress.jsonl are durable when it returns.

        ``before_start`` is called when nothing but the start is left to do: from then on the
        session may spend. ``halt`` kills it. Refusal 12 where the session could not be confined;
        nothing was started then.
        """
        order, engine = self.order, self.engine
        sidecar = self.sidecar or self.prepare()
        began = time.monotonic()
        self.container = container = engine.create_container(
            f"{order.name}-session",
            session_container(
                order.session_image,
                {**order.labels, "recorder.role": "session"},
                sidecar.socket_volume,
                order.limits,
            ),
        )
        engine.put(container, "/", order.workspace(order.uid))
        created = time.monotonic()
        ready = wait_ready(sidecar)
        was_ready = time.monotonic()
        engine.put(
            container,
            "/",
            control_files(
                argv=order.argv,
                environment=order.environment,
                uid=order.uid,
                certificate=ready["ca"],
                placeholder=order.placeholder,
                form=order.credential.form,
                files=session_files(order.credential),
            ),
        )
        inspected = engine.inspect(container)
        refuse_loose_construction(inspected)
        attachment = attach(engine.docker_host, container)
        try:
            try:
                streams = _Streams(order.directory)
                try:
                    if before_start is not None:
                        before_start()
                    self._owed = True
                    engine.start(container)
                    running = time.monotonic()
                    ended = self._watch(attachment, sidecar, streams, running, halt)
                finally:
                    streams.close()
            finally:
                attachment.close()
            over = time.monotonic()
            # The sidecar closes its log while the session's own end is collected.
            sidecar.attachment.close()
            exit_status = self._exit_status(container)
            outcome = read_outcome(engine.get_file(container, OUTCOME_FILE, OUTCOME_LIMIT))
            egress = end_sidecar(engine, sidecar)
            if egress is not None:
                write_durable(order.directory / "egress.jsonl", egress)
            self._owed = False
        except BaseException:
            self._salvage()
            raise
        collected = time.monotonic()
        return Watched(
            ended=ended,
            exit_status=exit_status,
            outcome=outcome,
            sidecar=ready,
            session_inspect=inspected,
            sidecar_inspect=engine.inspect(sidecar.container),
            egress_whole=egress is not None,
            times=Times(
                sidecar=was_ready - self._started,
                create=created - began,
                start=running - was_ready,
                first_line=streams.first_at - running if streams.first_at else None,
                session=over - running,
                collect=collected - over,
            ),
            stdout_bytes=streams.stdout_bytes,
            stderr_bytes=streams.stderr_bytes,
        )

    def workspace(self) -> Iterator[bytes]:
        """The workspace as the session left it, as a tar stream; every process has ended."""
        return self.engine.get(self._ran(), WORKSPACE)

    def log_directory(self) -> Iterator[bytes]:
        """The log directory as the session left it, as a tar stream."""
        return self.engine.get(self._ran(), LOG_DIRECTORY)

    def _ran(self) -> str:
        if self.container is None:
            raise RuntimeError("the session has no container: run() comes first")
        return self.container

    def _salvage(self) -> None:
        """End what was started, and keep its egress log and its outcome, whatever has failed.

        What cannot be had now stays in its containers, which the collection of leftovers reads.
        """
        sidecar, container = self.sidecar, self.container
        if not self._owed or sidecar is None or container is None:
            return
        # What ended the session says more than an engine that does not answer now.
        with suppress(DockerException, RequestException, OSError):
            self.engine.kill(container)
        with suppress(DockerException, RequestException, OSError):
            egress = end_sidecar(self.engine, sidecar)
            outcome = self.engine.get_file(container, OUTCOME_FILE, OUTCOME_LIMIT)
            for name, data in (("egress.jsonl", egress), ("outcome.json", outcome)):
                if data is not None:
                    write_durable(self.order.directory / name, data)
            self._owed = False

    def remove(self) -> None:
        """Take everything away, but for what holds an egress log that could not be kept yet."""
        if self._owed:
            return
        if self.container is not None:
            self.engine.remove_container(self.container)
            self.container = None
        if self.sidecar is not None:
            remove_sidecar(self.engine, self.sidecar)
            self.sidecar = None

    def _watch(
        self,
        attachment: Attachment,
        sidecar: Sidecar,
        streams: _Streams,
        began: float,
        halt: threading.Event | None,
    ) -> Ended:
        order = self.order
        deadline = began + order.timeout
        checked = began
        with selectors.DefaultSelector() as selector:
            selector.register(attachment, selectors.EVENT_READ, "session")
            selector.register(sidecar.attachment, selectors.EVENT_READ, "sidecar")
            while True:
                now = time.monotonic()
                if now >= deadline:
                    return self._stop("deadline", attachment, streams)
                if halt is not None and halt.is_set():
                    return self._stop("halted", attachment, streams)
                if now - checked >= WATCH_SECONDS:
                    checked = now
                    if shutil.disk_usage(order.directory).free < order.disk_floor:
                        return self._stop("disk", attachment, streams)
                pending = attachment.pending()
                wait = 0.0 if pending else min(deadline - now, WATCH_SECONDS)
                readable = {key.data for key, _ in selector.select(wait)}
                if "sidecar" in readable:
                    sidecar.absorb()
                    if sidecar.attachment.ended:
                        return self._stop("sidecar", attachment, streams)
                if pending or "session" in readable:
                    try:
                        streams.take(attachment)
                    except FrameError:
                        return self._stop("stream", attachment, streams)
                    if attachment.ended:
                        return "harness" if attachment.frames.between_frames else "stream"

    def _stop(self, why: Ended, attachment: Attachment, streams: _Streams) -> Ended:
        """Kill the session now, and keep what it had already written."""
        self.engine.kill(self._ran())
        attachment.connection.settimeout(END_SECONDS)
        while not attachment.ended and why != "stream":
            try:
                streams.take(attachment)
            except (TimeoutError, FrameError, Refusal):
                # The pipe did not close in time, or broke; why the session was stopped says more.
                break
        return why

    def _exit_status(self, container: str) -> int | None:
        try:
            return self.engine.wait(container, END_SECONDS)
        except RequestException:
            # Its output ended and it did not: it is killed, and no status is claimed.
            self.engine.kill(container)
            return None


class _Streams:
    """raw.jsonl and stderr.log: byte for byte, handed on at once, durable when closed."""

    def __init__(self, directory: Path) -> None:
        self._stdout = _create(directory / "raw.jsonl")
        self._stderr = _create(directory / "stderr.log")
        self.first_at: float | None = None
        self.stdout_bytes = 0
        self.stderr_bytes = 0

    def take(self, attachment: Attachment) -> None:
        for stream, piece in attachment.read():
            if stream == STDOUT:
                if self.first_at is None:
                    self.first_at = time.monotonic()
                self._stdout.write(piece)
                self.stdout_bytes += len(piece)
            else:
                self._stderr.write(piece)
                self.stderr_bytes += len(piece)
        # What a killed driver had read is the kernel's to write, and not lost with it.
        self._stdout.flush()
        self._stderr.flush()

    def close(self) -> None:
        """Both are closed even where one cannot be flushed: a full disk is told, not hung on."""
        with ExitStack() as closing:
            for file in (self._stdout, self._stderr):
                closing.callback(file.close)
            for file in (self._stdout, self._stderr):
                file.flush()
                os.fsync(file.fileno())


def _create(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def control_files(
    *,
    argv: tuple[str, ...],
    environment: Mapping[str, str],
    uid: int,
    certificate: str,
    placeholder: str,
    form: Form = "api-key",
    files: Mapping[str, bytes] | None = None,
    directory: str = WORKSPACE,
) -> Iterator[bytes]:
    """The guard's orders, the certificate and the session's own two directories, as a tar.

    ``files`` are the session's own, at its configuration directory's top.
    """
    orders = {
        "uid": uid,
        "gid": uid,
        "port": PROXY_PORT,
        "socket": SOCKET,
        "forwarder_uid": forwarder_uid(uid),
        "directory": directory,
        "argv": list(argv),
        "environment": dict(environment),
        "occupied": list(messaging_paths(uid)),
    }
    gathered = io.BytesIO()
    with tarfile.open(fileobj=gathered, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, data, mode in (
            (SESSION_FILE, json.dumps(orders).encode(), 0o600),
            (CERTIFICATE, certificate.encode(), 0o644),
            (MANAGED_SETTINGS, managed_settings(placeholder, form), 0o644),
        ):
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size, member.mode = len(data), mode
            archive.addfile(member, io.BytesIO(data))
        for path in (CONFIGURATION_DIRECTORY, LOG_DIRECTORY):
            member = tarfile.TarInfo(path.lstrip("/"))
            member.type, member.mode = tarfile.DIRTYPE, stat.S_IRWXU
            member.uid = member.gid = uid
            archive.addfile(member)
        for name, data in (files or {}).items():
            member = tarfile.TarInfo(f"{CONFIGURATION_DIRECTORY}/{name}".lstrip("/"))
            member.size, member.mode = len(data), stat.S_IRUSR | stat.S_IWUSR
            member.uid = member.gid = uid
            archive.addfile(member, io.BytesIO(data))
    yield gathered.getvalue()


def read_outcome(data: bytes | None) -> Mapping[str, Any] | None:
    """What the guard wrote at its end; None where it left nothing that can be read."""
    if data is None:
        return None
    try:
        parsed = json.loads(data)
    except ValueError:
        # Only the guard writes it, by rename: a broken one says no more than an absent one.
        return None
    return parsed if isinstance(parsed, dict) else None


def refuse_loose_construction(inspected: Mapping[str, Any]) -> None:
    """Refusal 12 where the engine made another container than the one that was asked for."""
    host = inspected["HostConfig"]
    faults = [
        fault
        for broken, fault in (
            (host["NetworkMode"] != "none", f"its network is {host['NetworkMode']}, not none"),
            (bool(host.get("Binds")), "it has a bind mount of the host"),
            (host.get("Privileged"), "it is privileged"),
            (host.get("PidMode"), f"its process namespace is {host.get('PidMode')}"),
            (not inspected["Config"].get("StdinOnce"), "its standard input outlives the driver"),
            (
                any(mount.get("Type") == "bind" for mount in inspected.get("Mounts", ())),
                "it has a bind mount of the host",
            ),
            (
                not any(str(o).startswith("seccomp=") for o in host.get("SecurityOpt") or ()),
                "it has no seccomp profile",
            ),
        )
        if broken
    ]
    if faults:
        raise Refusal(
            ExitCode.CONFINEMENT,
            *(f"the engine made a session container that is not confined: {f}" for f in faults),
        )
