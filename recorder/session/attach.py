"""The raw attach connection to one container: no HTTP client between the pipe and us.

The engine's HTTP client libraries read ahead at the upgrade and lose the first bytes, or hang on
a container that has ended; so the request is written by hand and whatever follows its answer is
kept. Attach before the start: on an ended container the stream never closes.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from recorder.refusal import ExitCode, Refusal
from recorder.session.frames import Demultiplexer, Stream

READ_SIZE = 1 << 18
HEAD_LIMIT = 1 << 16
ATTACH_QUERY = "stream=1&stdin=1&stdout=1&stderr=1"


def open_engine_socket(docker_host: str, timeout: float) -> socket.socket:
    """A connected socket to the engine's API. Schemes: unix, tcp, http, https."""
    parts = urlsplit(docker_host)
    if parts.scheme == "unix":
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout)
            connection.connect(parts.path)
        except BaseException:
            connection.close()
            raise
        return connection
    if parts.scheme in ("tcp", "http", "https") and parts.hostname:
        verify = bool(os.environ.get("DOCKER_TLS_VERIFY")) or parts.scheme == "https"
        plain = socket.create_connection(
            (parts.hostname, parts.port or (2376 if verify else 2375)), timeout
        )
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not verify:
            return plain
        directory = Path(os.environ.get("DOCKER_CERT_PATH") or Path.home() / ".docker")
        context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
        context.load_cert_chain(directory / "cert.pem", directory / "key.pem")
        return context.wrap_socket(plain, server_hostname=parts.hostname)
    raise Refusal(
        ExitCode.MISSING,
        f"{docker_host}: an engine is attached to over unix:// or tcp://, not {parts.scheme}://: "
        "forward its socket and set DOCKER_HOST to that",
    )


@dataclass
class Attachment:
    """One attached container: pieces of its output, and its standard input as a lifeline."""

    connection: socket.socket
    frames: Demultiplexer
    _early: deque[tuple[Stream, bytes]]
    ended: bool = False

    def fileno(self) -> int:
        return self.connection.fileno()

    def pending(self) -> bool:
        """True where a read would not touch the socket, so a selector would not see it."""
        if self._early:
            return True
        return isinstance(self.connection, ssl.SSLSocket) and self.connection.pending() > 0

    def read(self) -> list[tuple[Stream, bytes]]:
        """The next pieces; sets ``ended`` when the stream has ended. Waits on the socket.

        Refusal 3 where the connection broke, TimeoutError where the caller bounded the wait.
        """
        if self._early:
            pieces = list(self._early)
            self._early.clear()
            return pieces
        try:
            data = self.connection.recv(READ_SIZE)
        except TimeoutError:
            # The caller's own bound on the wait, and not the engine's fault.
            raise
        except OSError as error:
            raise stopped_answering("while it was read", error) from error
        if not data:
            self.ended = True
            return []
        return list(self.frames.feed(data))

    def send(self, data: bytes) -> None:
        """Refusal 3 where the connection broke."""
        try:
            self.connection.sendall(data)
        except OSError as error:
            raise stopped_answering("while it was written to", error) from error

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def stopped_answering(when: str, error: OSError) -> Refusal:
    """Refusal 3: the engine's connection to a container broke, and when."""
    why = error.strerror or str(error) or type(error).__name__
    return Refusal(
        ExitCode.MISSING,
        f"the engine stopped answering: its connection to a container broke {when} ({why}): "
        "see `recorder engine status`, and run the same command again",
    )


def attach(docker_host: str, container: str, timeout: float = 60.0) -> Attachment:
    """Attach to a created container. Refusal 3 where the engine does not do it."""
    try:
        return _attach(docker_host, container, timeout)
    except OSError as error:
        raise stopped_answering("as it was opened", error) from error


def _attach(docker_host: str, container: str, timeout: float) -> Attachment:
    connection = open_engine_socket(docker_host, timeout)
    try:
        request = (
            f"POST /containers/{container}/attach?{ATTACH_QUERY} HTTP/1.1\r\n"
            "Host: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
            "Content-Type: text/plain\r\nContent-Length: 0\r\n\r\n"
        )
        connection.sendall(request.encode("ascii"))
        answer = bytearray()
        while b"\r\n\r\n" not in answer:
            piece = connection.recv(4096)
            if not piece or len(answer) > HEAD_LIMIT:
                raise ConnectionError(f"attach to {container}: no answer from the engine")
            answer += piece
        head, _, first = bytes(answer).partition(b"\r\n\r\n")
        status = head.split(b"\r\n", 1)[0].split(b" ", 2)
        if len(status) < 2 or status[1] not in (b"101", b"200"):
            line = head.split(b"\r\n", 1)[0].decode("latin-1")
            raise ConnectionError(f"attach to {container}: {line}")
        frames = Demultiplexer()
        early = deque(frames.feed(first))
        return Attachment(connection, frames, early)
    except BaseException:
        connection.close()
        raise
