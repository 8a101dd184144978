"""The rehearsal provider: a Messages API that answers from a script, over TLS.

One thread a connection, and nothing imported beside the standard library, PyYAML and msgspec,
because it starts in a container before every rehearsed batch. What it answers is decided in
``script`` and ``answer``; here are only sockets, the count of attempts, and waiting.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from recorder.rehearsal.answer import (
    REQUEST_PREFIX,
    Answer,
    Event,
    RequestError,
    build_answer,
    count_tokens,
    encode_event,
    error_answer,
    error_body,
    error_event,
    half_of,
    read_request,
    side_answer,
    stream_events,
    whole_message,
)
from recorder.rehearsal.script import (
    Caller,
    Cut,
    ErrorEvent,
    ErrorStatus,
    Failure,
    Script,
    Stall,
    choose_conversation,
    choose_turn,
    failure_at,
    read_credential,
)

# The real API's own bound on a request is 32 MB; a larger one is refused before it is read.
MAXIMUM_BODY = 32 * 1024 * 1024
_HANDSHAKE_SECONDS = 10.0


class Attempts:
    """How often each turn was asked for, since a failure is of one attempt."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, ...], int] = {}

    def next(self, *key: str) -> int:
        """The number of earlier attempts under this key."""
        with self._lock:
            count = self._counts.get(key, 0)
            self._counts[key] = count + 1
            return count


class Provider(ThreadingHTTPServer):
    """The listening provider. ``report`` is told of each request, one mapping a request."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        script: Script,
        *,
        tls: ssl.SSLContext | None,
        workspace: str,
        report: Callable[[Mapping[str, object]], None],
    ) -> None:
        self.script = script
        self.tls = tls
        self.workspace = workspace
        self.report = report
        self.attempts = Attempts()
        super().__init__(address, _Connection)

    def get_request(self) -> tuple[socket.socket, object]:
        """Accept, and leave the handshake to the connection's own thread.

        Otherwise one client that connects and says nothing would hold up every other.
        """
        accepted, address = super().get_request()
        if self.tls is not None:
            accepted = self.tls.wrap_socket(
                accepted, server_side=True, do_handshake_on_connect=False
            )
        return accepted, address

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is no fault; anything else is said in one line."""
        del request, client_address
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | TimeoutError | ssl.SSLError):
            print(f"rehearsal: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


def tls_context(certificate_pem: str, key_pem: str) -> ssl.SSLContext:
    """A server context from PEM texts, by way of an anonymous file: the key touches no disk.

    Raises ``ssl.SSLError`` for what is no certificate and key of one another.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    descriptor = os.memfd_create("rehearsal-key")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(certificate_pem.encode() + b"\n" + key_pem.encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    return context


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "rehearsal"
    sys_version = ""
    disable_nagle_algorithm = True
    server: Provider

    def setup(self) -> None:
        if isinstance(self.request, ssl.SSLSocket):
            self.request.settimeout(_HANDSHAKE_SECONDS)
            self.request.do_handshake()
            self.request.settimeout(None)
        super().setup()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base's name)
        """Nothing: ``report`` says what was asked, and standard error is for faults."""

    def _answer(self) -> None:
        self.request_id = REQUEST_PREFIX + secrets.token_hex(10)
        path = self.path.partition("?")[0]
        try:
            body = self._body()
            if self.command == "POST" and path == "/v1/messages":
                self._messages(body)
            elif self.command == "POST" and path == "/v1/messages/count_tokens":
                self._caller()
                self._json(200, count_tokens(body))
                self._report(path, status="200")
            else:
                raise RequestError(404, "not_found_error", "Not found")
        except RequestError as fault:
            self._json(fault.status, error_body(fault.kind, fault.message, self.request_id))
            self._report(path, status=str(fault.status))
        except ConnectionError:
            self.close_connection = True

    # The base class looks for one method an HTTP verb; any other verb gets its 501.
    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _answer  # noqa: N815

    def _body(self) -> bytes:
        if "chunked" in (self.headers.get("transfer-encoding") or "").lower():
            return self._chunked_body()
        try:
            length = int(self.headers.get("content-length") or 0)
        except ValueError:
            length = -1
        if not 0 <= length <= MAXIMUM_BODY:
            self.close_connection = True
            raise RequestError(413, "request_too_large", "Request exceeds the maximum size")
        body = self.rfile.read(length)
        if len(body) < length:
            raise ConnectionResetError
        return body

    def _chunked_body(self) -> bytes:
        body = bytearray()
        while True:
            line = self.rfile.readline(1024).partition(b";")[0].strip()
            try:
                length = int(line, 16)
            except ValueError:
                length = -1
            if not 0 <= length <= MAXIMUM_BODY - len(body):
                self.close_connection = True
                raise RequestError(413, "request_too_large", "Request exceeds the maximum size")
            body += self.rfile.read(length)
            self.rfile.readline(1024)
            if length == 0:
                return bytes(body)

    def _caller(self) -> Caller:
        bearer = self.headers.get("authorization") or ""
        given = self.headers.get("x-api-key") or bearer.removeprefix("Bearer ").strip()
        caller = read_credential(given)
        if caller is None:
            raise RequestError(
                401,
                "authentication_error",
                "this is a rehearsal: its provider takes only a rehearsal's credential",
            )
        return caller

    def _messages(self, body: bytes) -> None:
        caller = self._caller()
        request = read_request(body)
        run = self.headers.get("x-claude-code-session-id") or ""
        # A session's name is distinct within its probe only. A harness run twice under one name
        # starts its failures again, so the harness's own session belongs to the key too.
        who = (caller.probe, caller.session, run)
        if not request.has_tools:
            attempt = self.server.attempts.next(*who, "side")
            answer = side_answer(request, seed=json.dumps([*who, "side", attempt]))
            self._report("/v1/messages", status="200", caller=caller, conversation="side")
            self._give(answer, stream=request.stream)
            return
        script = self.server.script.of(caller.probe)
        if script is None:
            raise RequestError(
                400,
                "invalid_request_error",
                f"the rehearsal script names no probe {caller.probe} and has no default",
            )
        conversation = choose_conversation(script, caller.session, request.first_text)
        turn = choose_turn(conversation, request.position)
        name = conversation.name
        attempt = self.server.attempts.next(*who, name, str(request.position))
        failure = failure_at(turn, attempt)
        self._report(
            "/v1/messages",
            status=_status_word(failure),
            caller=caller,
            conversation=name,
            position=request.position,
            attempt=attempt,
        )
        if turn.delay:
            time.sleep(turn.delay)
        seed = json.dumps([*who, name, request.position, attempt])
        answer = build_answer(turn, request, seed=seed, workspace=self.server.workspace)
        if failure is None:
            self._give(answer, stream=request.stream)
        else:
            self._fail(failure, answer, stream=request.stream)

    def _give(self, answer: Answer, *, stream: bool) -> None:
        if not stream:
            self._json(200, whole_message(answer))
            return
        self._start_stream()
        self._events(stream_events(answer))
        self.wfile.write(b"0\r\n\r\n")

    def _fail(self, failure: Failure, answer: Answer, *, stream: bool) -> None:
        if isinstance(failure, ErrorStatus):
            error = error_answer(failure, self.request_id)
            self._json(error.status, error.body, error.headers)
            return
        if isinstance(failure, Cut) and failure.where == "before":
            self._cut()
            return
        if stream:
            self._start_stream()
            self._events(half_of(stream_events(answer)))
        if isinstance(failure, ErrorEvent):
            if stream:
                self._events([{**error_event(failure.type), "request_id": self.request_id}])
                self.wfile.write(b"0\r\n\r\n")
            else:
                overloaded = failure.type == "overloaded_error"
                status = ErrorStatus("529" if overloaded else "500")
                error = error_answer(status, self.request_id)
                self._json(error.status, error.body, error.headers)
            return
        if isinstance(failure, Stall):
            time.sleep(failure.seconds)
        self._cut()

    def _start_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("cache-control", "no-cache")
        self.send_header("request-id", self.request_id)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def _events(self, events: Sequence[Event]) -> None:
        for event in events:
            encoded = encode_event(event)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(encoded), encoded))

    def _json(self, status: int, body: Event, headers: Mapping[str, str] | None = None) -> None:
        encoded = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("request-id", self.request_id)
        self.send_header("content-length", str(len(encoded)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(encoded)

    def _cut(self) -> None:
        self.close_connection = True
        # Of a TLS socket too this closes the one below, without a close_notify, which would make
        # the cut look like an orderly end.
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _report(
        self,
        path: str,
        *,
        status: str,
        caller: Caller | None = None,
        conversation: str | None = None,
        position: int | None = None,
        attempt: int | None = None,
    ) -> None:
        self.server.report(
            {
                "event": "request",
                "request_id": self.request_id,
                "method": self.command,
                "path": path,
                "status": status,
                "probe": caller.probe if caller else None,
                "session": caller.session if caller else None,
                "conversation": conversation,
                "position": position,
                "attempt": attempt,
            }
        )


def _status_word(failure: Failure | None) -> str:
    if failure is None:
        return "200"
    if isinstance(failure, ErrorStatus):
        return failure.name
    if isinstance(failure, Cut):
        return f"cut-{failure.where}"
    return "stall" if isinstance(failure, Stall) else failure.type
