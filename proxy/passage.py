"""The session's connections: from the unix socket straight into mitmproxy's protocol core.

mitmproxy's servers listen on TCP and UDP only, but its core takes any pair of asyncio streams, so
there is no second hop: no listener in the container that anything but the socket reaches.
"""
# mypy: disable-error-code="misc"

from __future__ import annotations

import asyncio
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

from mitmproxy.options import Options
from mitmproxy.proxy import commands
from mitmproxy.proxy.layers.modes import HttpProxy
from mitmproxy.proxy.mode_specs import ProxyMode
from mitmproxy.proxy.server import LiveConnectionHandler

from proxy.addon import Confinement, Sidecar
from proxy.decision import Layer, Refused, Rule
from proxy.layers import Progress

HEAD_SECONDS = 30.0
MOST_CONNECTIONS = 256

# Hooks that only say that something is over. mitmproxy cleans up after them, so they always return.
_ENDINGS = frozenset(
    {"client_disconnected", "server_disconnected", "server_connect_error", "error"}
)


class PassageClosedError(Exception):
    """A hook raised; the connection is over and mitmproxy may not go on with it."""


class _SessionWriter:
    """A unix stream writer with the TCP-shaped peer name that mitmproxy expects."""

    def __init__(self, writer: asyncio.StreamWriter, connection: int) -> None:
        self._writer = writer
        self._connection = connection

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name in ("peername", "sockname"):
            return ("session", self._connection)
        return self._writer.get_extra_info(name, default)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


class _GatedWriter:
    """Towards the provider: not a byte but while an allowed request is underway.

    It also asks for immediate acknowledgements, before each request and each chunk: a server that
    waits for one (Nagle) before its next small segment otherwise waits 40 ms for a delayed one.
    Measured: first byte after 45 to 48 ms without, 2 to 6 ms with.
    """

    def __init__(self, writer: Any, confinement: Confinement) -> None:
        self._writer = writer
        self._confinement = confinement
        self._socket = writer.get_extra_info("socket")
        confinement.acknowledge = self.acknowledge

    def acknowledge(self) -> None:
        """The option holds for a short while only, so it is set again and again."""
        if not self._writer.is_closing():
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def write(self, data: bytes) -> None:
        sent = self._confinement.sent
        if not self._confinement.may_send() or sent is None:
            return
        sent.sent_bytes += len(data)
        self._writer.write(data)
        self.acknowledge()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


class Passage(LiveConnectionHandler):
    """One connection of the session. A hook that raises, or that is not known, ends it."""

    def __init__(
        self,
        sidecar: Sidecar,
        connection: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        options: Options,
    ) -> None:
        session = _SessionWriter(writer, connection)
        super().__init__(reader, session, options, ProxyMode.parse("regular"))
        self.layer: Any = HttpProxy(self.layer.context)
        self.confinement = Confinement(sidecar, connection, self.close, self.progress)
        self.dead = False
        self._clock: asyncio.TimerHandle | None = None
        self.progress(Progress.BEGUN)

    def close(self) -> None:
        """End the connection and everything that it opened."""
        self.dead = True
        self.progress(Progress.DONE)
        for transport in list(self.transports.values()):
            if transport.handler is not None:
                transport.handler.cancel("closed")

    def progress(self, progress: Progress) -> None:
        """Start or stop the clock on a request's head."""
        if progress is Progress.DONE or self.dead:
            if self._clock is not None:
                self._clock.cancel()
                self._clock = None
        elif self._clock is None:
            loop = asyncio.get_running_loop()
            self._clock = loop.call_later(HEAD_SECONDS, self._too_slow)

    def _too_slow(self) -> None:
        self._clock = None
        try:
            self.confinement.too_slow()
        except Exception:  # noqa: BLE001 - whatever it was, the connection ends here
            self._fault("too_slow")

    async def handle_hook(self, hook: commands.StartHook) -> None:
        with self.timeout_watchdog.disarm():
            try:
                if self.dead and hook.name not in _ENDINGS:
                    raise PassageClosedError
                getattr(self.confinement, hook.name)(*hook.args())
                if hook.name == "server_connected":
                    transport = self.transports[hook.args()[0].server]
                    transport.writer = _GatedWriter(transport.writer, self.confinement)
            except PassageClosedError:
                raise
            except Exception as error:
                self._fault(hook.name)
                if hook.name not in _ENDINGS:
                    raise PassageClosedError from error

    async def hook_task(self, hook: commands.StartHook) -> None:
        try:
            await super().hook_task(hook)
        except PassageClosedError:
            return  # mitmproxy never learns that the hook is done, so nothing follows from it

    def _fault(self, where: str) -> None:
        _tell(where)
        self.close()
        try:
            self.confinement.fault(where)
        except Exception:  # noqa: BLE001 - the log is gone too; the connection is closed already
            _tell(f"the line of {where}")

    def log(self, _message: str, _level: int = 0, exc_info: Any = None) -> None:
        """mitmproxy's own log lines name what a session sent, so they are dropped. One with an
        exception means that a layer raised and was ignored: that ends the connection."""
        if exc_info:
            self._fault("mitmproxy")


def _tell(where: str) -> None:
    """Where an exception came from, on standard error, without its text: that may quote secrets."""
    kind, _, trace = sys.exc_info()
    frames = traceback.extract_tb(trace)[-1:]
    place = "".join(f" at {Path(frame.filename).name}:{frame.lineno}" for frame in frames)
    name = kind.__name__ if kind is not None else "fault"
    print(f"proxy: {where}: {name}{place}", file=sys.stderr, flush=True)


class Listener:
    """The unix socket. The session's forwarder and our canary come in here, nothing else can."""

    def __init__(self, path: Path, sidecar: Sidecar, options: Options) -> None:
        self._path = path
        self._sidecar = sidecar
        self._options = options
        self._passages: set[Passage] = set()
        self._connections = 0
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen. The mode lets any user of the session in: they share the one way out."""
        self._path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, self._path)
        self._path.chmod(0o666)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        if self._sidecar.log.full:
            self._sidecar.log.pass_over()
            writer.close()
            return
        try:
            if len(self._passages) >= MOST_CONNECTIONS:
                turned_away = Confinement(
                    self._sidecar, self._connections, writer.close, lambda _: None
                )
                turned_away.refuse(Layer.CONNECT, Refused(Rule.TOO_MANY_CONNECTIONS), {})
                writer.close()
                return
            passage = Passage(self._sidecar, self._connections, reader, writer, self._options)
        except Exception:  # noqa: BLE001 - nothing was read yet
            _tell("connection")
            writer.close()
            return
        self._passages.add(passage)
        try:
            await passage.handle_client()
        except PassageClosedError:
            pass
        finally:
            self._passages.discard(passage)
            writer.close()

    async def close(self) -> None:
        """Stop listening and end every connection, so that their last lines are in the log."""
        if self._server is not None:
            self._server.close()
        for passage in list(self._passages):
            passage.close()
        for _ in range(50):
            if not self._passages:
                return
            await asyncio.sleep(0.01)
