"""mitmproxy's protocol layers, narrowed: what they buffer without end or answer on their own.

Sans-IO like the layers they extend: events in, commands out.
"""
# mypy: disable-error-code="misc, no-any-return"

from __future__ import annotations

import enum
from collections.abc import Callable, Generator
from typing import Any

from mitmproxy.net.http import http1
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers.http import HttpLayer, HTTPMode
from mitmproxy.proxy.layers.http._events import ResponseProtocolError
from mitmproxy.proxy.layers.http._http1 import Http1Server
from mitmproxy.proxy.layers.tls import ClientTLSLayer, ServerTLSLayer

LONGEST_HELLO = 65536
LONGEST_WRITE = 262144

Commands = Generator[Any, Any, None]


class Progress(enum.Enum):
    """How far a request's head has come, for the clock that ends slow ones."""

    BEGUN = enum.auto()
    DONE = enum.auto()


class ClosedLayer(layer.Layer):
    """Closes the session's connection and takes nothing more."""

    def _handle_event(self, event: events.Event) -> Commands:
        if isinstance(event, events.Start):
            yield commands.CloseConnection(self.context.client)


class BoundedClientTLSLayer(ClientTLSLayer):
    """TLS with the session whose ClientHello may not go on for ever (mitmproxy's may: 16 MB)."""

    def receive_handshake_data(self, data: bytes) -> Generator[Any, Any, tuple[bool, str | None]]:
        if not self.client_hello_parsed and len(self.recv_buffer) + len(data) > LONGEST_HELLO:
            return False, "ClientHello too long"
        return (yield from super().receive_handshake_data(data))


class PiecewiseServerTLSLayer(ServerTLSLayer):
    """TLS with the provider that takes a long body in pieces.

    Given one of 32 MB whole, OpenSSL held it encrypted beside the plain one, and once more while
    its buffer grew.
    """

    def send_data(self, data: bytes) -> Commands:
        for at in range(0, len(data), LONGEST_WRITE):
            yield from super().send_data(data[at : at + LONGEST_WRITE])


class StrictHttp1Server(Http1Server):
    """HTTP/1.1 with the session: a head is read only after its raw bytes were decided.

    `admit(head, whole)` returns None to go on, or the whole answer to send before closing.
    `explain()` returns the answer for what mitmproxy would answer itself, with its own page.
    """

    def __init__(
        self,
        context: Any,
        admit: Callable[[bytes, bool], bytes | None],
        explain: Callable[[], bytes],
        progress: Callable[[Progress], None],
    ) -> None:
        super().__init__(context)
        self._admit = admit
        self._explain = explain
        self._progress = progress

    def read_headers(self, event: events.ConnectionEvent) -> Commands:
        if isinstance(event, events.DataReceived):
            received = bytes(self.buf)
            end = received.find(b"\r\n\r\n")
            head = received if end < 0 else received[:end]
            answer = self._admit(head, end >= 0) if received else None
            if answer is not None:
                yield from self._refuse(answer)
                return
            self._progress(Progress.BEGUN if end < 0 else Progress.DONE)
            if end < 0:
                return
            try:
                parsed = http1.read_request_head(head.split(b"\r\n"))
                http1.expected_http_body_size(parsed)
            except ValueError:
                yield from self._refuse(self._explain())
                return
        yield from super().read_headers(event)

    def send(self, event: Any) -> Commands:
        if isinstance(event, ResponseProtocolError) and not self.response:
            yield from self._refuse(self._explain())
            return
        yield from super().send(event)

    def _refuse(self, answer: bytes) -> Commands:
        if answer:
            yield commands.SendData(self.conn, answer)
        yield commands.CloseConnection(self.conn)
        self.state = self.done


def http_layer(
    context: Any,
    mode: HTTPMode,
    admit: Callable[[bytes, bool], bytes | None],
    explain: Callable[[], bytes],
    progress: Callable[[Progress], None],
) -> HttpLayer:
    """mitmproxy's HTTP layer with our reader towards the session, whatever ALPN said."""
    made = HttpLayer(context, mode)
    made.connections[context.client] = StrictHttp1Server(context.fork(), admit, explain, progress)
    return made
