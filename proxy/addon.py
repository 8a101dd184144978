"""The hooks of one connection of the session: they gather facts, ask `decision`, and write the log.

The names are mitmproxy's (`http_connect`, `requestheaders`, `server_connect`, ...). mitmproxy's own
addon manager logs an addon's exception and goes on, which lets the request through; so it is not
used: `passage` calls these hooks itself, and one that raises ends the connection. What is allowed
leaves through two gates that are shut unless a logged decision opened them for this very request:
`server_connect`, and `may_send`, which every byte towards the provider asks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mitmproxy import http
from mitmproxy.addons.tlsconfig import TlsConfig
from mitmproxy.net.http import http1
from mitmproxy.proxy.layers import ClientTLSLayer
from mitmproxy.proxy.layers.http import HTTPMode, HttpStream
from mitmproxy.proxy.layers.modes import HttpProxy

from proxy.bounds import Prices, Told, Used, add
from proxy.decision import (
    Allowed,
    BodyFacts,
    ConnectFacts,
    HeadFacts,
    HelloFacts,
    Layer,
    OpeningFacts,
    Refused,
    RequestFacts,
    Rule,
    decide,
)
from proxy.egress import EgressLog, safe
from proxy.layers import (
    BoundedClientTLSLayer,
    ClosedLayer,
    PiecewiseServerTLSLayer,
    Progress,
    http_layer,
)
from proxy.policy import Policy
from proxy.witness import AnswerReader, Histories, SecretCutter, request_members

# A refused body up to this size is read and the connection stays; a longer one is not waited for.
_SMALL_BODY = 65536


@dataclass(frozen=True)
class Credential:
    """What the sidecar puts in the placeholder's place. `kind`: api_key, bearer or none."""

    kind: str
    value: str = field(repr=False)

    @property
    def header(self) -> tuple[str, str] | None:
        """Name and value of the header that carries it to the provider."""
        match self.kind:
            case "api_key":
                return "x-api-key", self.value
            case "bearer":
                return "authorization", f"Bearer {self.value}"
            case _:
                return None


@dataclass
class Sidecar:
    """What all connections of one session share. While `proving`, its one request is ours."""

    policy: Policy
    log: EgressLog
    placeholder: str = field(repr=False)
    credential: Credential = field(repr=False)
    tls: TlsConfig = field(repr=False)
    prices: Prices = field(default_factory=dict, repr=False)
    proving: bool = True
    used: Used = field(default_factory=Used)
    underway: int = 0
    histories: Histories = field(default_factory=Histories)


@dataclass
class Sent:
    """A request that was allowed, until its answer is over."""

    flow: str
    number: int
    host: str
    port: int
    started: float
    asked: Mapping[str, Any]
    spends: bool
    body_bytes: int
    sent_bytes: int = 0
    received_bytes: int = 0
    first_byte: float | None = None
    status: int | None = None
    request_id: str | None = None
    upstream: str | None = None
    certificate: str | None = None
    reader: AnswerReader | None = None
    end: str = "whole"


class Confinement:
    """The hooks, for one connection. `close` ends the connection at once, with all it opened."""

    def __init__(
        self,
        sidecar: Sidecar,
        connection: int,
        close: Callable[[], None],
        progress: Callable[[Progress], None],
    ) -> None:
        self.sidecar = sidecar
        self.connection = connection
        self.close = close
        self.progress = progress
        self.acknowledge: Callable[[], None] = lambda: None
        self.connect: ConnectFacts | None = None
        self.hello: HelloFacts | None = None
        self.head_allowed: str | None = None
        self.refused: Refused | None = None
        self.sent: Sent | None = None
        self.lines = 0
        self.line: dict[str, str] = {}

    # Decisions and their lines.

    def may_send(self) -> bool:
        """May bytes go to the provider now? Only while an allowed request is underway."""
        return self.sent is not None

    def refuse(self, layer: Layer, refused: Refused, asked: Mapping[str, Any]) -> None:
        """Log a refusal. What it stopped is not answered before this returns."""
        self.refused = refused
        self.lines += 1
        self.sidecar.log.append(
            "canary" if self.sidecar.proving else "decision",
            {
                "connection": self.connection,
                "request": None,
                "layer": layer,
                "asked": dict(asked),
                "decision": "refused",
                "rule": refused.rule,
                "detail": safe(refused.detail),
                "status": refused.status or None,
            },
            durable=True,
        )

    def allow(self, layer: Layer, asked: Mapping[str, Any], more: Mapping[str, Any]) -> None:
        """Log that something may pass; it is on disk when this returns."""
        self.lines += 1
        self.sidecar.log.append(
            "decision",
            {
                "connection": self.connection,
                "request": None,
                "layer": layer,
                "asked": dict(asked),
                "decision": "allowed",
                "rule": None,
                "detail": "",
                "status": None,
                **more,
            },
            durable=True,
        )

    def fault(self, where: str) -> None:
        """Something of ours or of mitmproxy's raised: one line, and the connection is over."""
        self.close()
        self.refuse(Layer.FAULT, Refused(Rule.FAULT, where), self._asked())

    def too_slow(self) -> None:
        """A head did not come to its end in time."""
        self.refuse(Layer.HEAD, Refused(Rule.HEAD_TOO_SLOW), self._asked())
        self.close()

    def admit(self, head: bytes, whole: bool) -> bytes | None:
        """Decide a request's raw head; the answer to close with, or None to read on."""
        decision = decide(self.sidecar.policy, HeadFacts(head, whole))
        line = head.split(b"\n", 1)[0].decode("latin-1").split(" ")
        self.line = {"method": line[0][:20], "path": line[1] if len(line) > 1 else ""}
        if isinstance(decision, Allowed):
            if whole:
                self.refused = None
            return None
        self.refuse(Layer.HEAD, decision, self._asked(**self.line))
        return _on_the_wire(decision)

    def explain(self) -> bytes:
        """The answer in place of mitmproxy's own error pages. Logged here if nothing was yet."""
        if self.sent is not None:
            return _on_the_wire(Refused(Rule.UPSTREAM))
        if self.refused is None:
            self.refuse(Layer.HEAD, Refused(Rule.HEAD_MALFORMED), self._asked(**self.line))
        return _on_the_wire(self.refused or Refused(Rule.HEAD_MALFORMED))

    # Hooks, in the order in which a connection meets them.

    def client_connected(self, client: Any) -> None:
        """A connection came through the socket. It may speak."""

    def next_layer(self, nextlayer: Any) -> None:
        """What comes next in the bytes: HTTP, then TLS inside a tunnel, then HTTP inside that."""
        context = nextlayer.context
        inner = context.layers[-1]
        reader = (self.admit, self.explain, self.progress)
        if isinstance(inner, HttpProxy):
            nextlayer.layer = http_layer(context, HTTPMode.regular, *reader)
        elif isinstance(inner, HttpStream) and self.connect is not None and self.hello is None:
            first = nextlayer.data_client()
            decision = decide(self.sidecar.policy, OpeningFacts(first))
            if isinstance(decision, Refused):
                self.refuse(Layer.OPENING, decision, self._asked())
                nextlayer.layer = ClosedLayer(context)
            elif len(first) >= 3:
                nextlayer.layer = PiecewiseServerTLSLayer(context)
                nextlayer.layer.child_layer = BoundedClientTLSLayer(context)
        elif isinstance(inner, ClientTLSLayer) and self.hello is not None:
            nextlayer.layer = http_layer(context, HTTPMode.transparent, *reader)
        else:
            nextlayer.layer = ClosedLayer(context)
            self.fault("next_layer")

    def http_connect(self, flow: http.HTTPFlow) -> None:
        """CONNECT: the authority is read from its raw bytes, nothing is decoded or normalised."""
        host, _, port = flow.request.data.authority.decode("latin-1").rpartition(":")
        facts = ConnectFacts(
            host=host,
            port=int(port) if port.isascii() and port.isdigit() and len(port) < 6 else 0,
            host_headers=_values(flow.request, b"host"),
        )
        decision = decide(self.sidecar.policy, facts)
        if isinstance(decision, Allowed) and self.connect is None and flow.request.host == host:
            self.connect = facts
            return
        refused = decision if isinstance(decision, Refused) else Refused(Rule.HEAD_MALFORMED)
        asked = {"host": safe(host), "port": facts.port or safe(port), "method": "CONNECT"}
        self.refuse(Layer.CONNECT, refused, asked)
        flow.response = _answer(refused)

    def http_connected(self, flow: http.HTTPFlow) -> None:
        """The tunnel stands, as far as the session knows. Nothing was dialled."""

    def http_connect_error(self, flow: http.HTTPFlow) -> None:
        """The refusal of a CONNECT is on its way."""

    def tls_clienthello(self, data: Any) -> None:
        """The first message of TLS: the name it asks for has to be the tunnel's."""
        if self.connect is None:
            raise RuntimeError("a ClientHello outside a tunnel")
        facts = HelloFacts(
            connect_host=self.connect.host,
            server_name=data.client_hello.sni,
            extensions=tuple(number for number, _ in data.client_hello.extensions),
        )
        decision = decide(self.sidecar.policy, facts)
        if isinstance(decision, Refused):
            self.refuse(Layer.HELLO, decision, self._asked(server_name=facts.server_name or ""))
        else:
            self.hello = facts

    def tls_start_client(self, data: Any) -> None:
        """Without a context that is set here, mitmproxy closes the connection."""
        if self.hello is not None:
            self.sidecar.tls.tls_start_client(data)

    def tls_established_client(self, data: Any) -> None:
        """The session trusts our certificate."""

    def tls_failed_client(self, _data: Any) -> None:
        """A client that does not know our authority, or no TLS that can be read."""
        if not self.lines:
            rule = Rule.HANDSHAKE if self.hello is not None else Rule.HELLO_UNREADABLE
            self.refuse(Layer.HELLO, Refused(rule), self._asked())

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """A request's head. Refused here, it is answered without its body where that is long."""
        self.head_allowed = None
        request = flow.request
        if flow.error is not None:
            self.refuse(Layer.REQUEST, Refused(Rule.HEAD_MALFORMED), self._asked_by(request))
            return
        decision = decide(self.sidecar.policy, self._facts(request))
        if isinstance(decision, Allowed):
            self.head_allowed = flow.id
            return
        self.refuse(Layer.REQUEST, decision, self._asked_by(request))
        if _body_is_small(request):
            flow.response = _answer(decision)
        else:
            flow.kill()

    def request(self, flow: http.HTTPFlow) -> None:
        """The whole request. Allowed, it is logged on disk and changed into what leaves."""
        if flow.response is not None:
            return
        if self.head_allowed != flow.id or self.sent is not None or self.connect is None:
            raise RuntimeError("a request whose head was not allowed")
        self.head_allowed = None
        request = flow.request
        body = request.raw_content or b""
        decision = decide(
            self.sidecar.policy, BodyFacts(body, self.sidecar.prices, self.sidecar.log.size)
        )
        if isinstance(decision, Refused):
            self.refuse(Layer.BODY, decision, self._asked_by(request))
            flow.response = _answer(decision)
            return
        asked = self._asked_by(request)
        said = request_members(decision.document)
        self._seal(request)
        used = self.sidecar.used
        self.sidecar.used = replace(used, requests=used.requests + 1)
        number = self.sidecar.used.requests
        said = self.sidecar.histories.shorten(number, said)
        self.allow(Layer.BODY, asked, {"request": number, "bytes": len(body), "said": said})
        self.sidecar.underway += 1
        self.sent = Sent(
            flow=flow.id,
            number=number,
            host=self.connect.host,
            port=self.connect.port,
            started=time.monotonic(),
            asked=said,
            spends=self.sidecar.policy.spends(request.path.partition("?")[0]),
            body_bytes=len(body),
        )

    def server_connect(self, data: Any) -> None:
        """The last gate before a look-up: shut, but for the one host of a request underway."""
        sent = self.sent
        server = data.server
        if (
            sent is not None
            and server.address == (sent.host, sent.port)
            and server.tls
            and server.transport_protocol == "tcp"
            and server.via is None
        ):
            return
        server.error = "not decided"
        asked = self._asked()
        if server.address:
            asked = {"host": safe(str(server.address[0])), "port": server.address[1]}
        self.refuse(Layer.DIAL, Refused(Rule.NOT_DECIDED), asked)

    def server_connected(self, _data: Any) -> None:
        """The connection to the provider stands; `passage` puts the gate before its bytes."""
        if self.sent is None:
            raise RuntimeError("a connection that no request asked for")

    def server_connect_error(self, data: Any) -> None:
        """The provider could not be reached; the answer's line says so."""

    def tls_start_server(self, data: Any) -> None:
        """TLS with the provider: verified, HTTP/1.1 only."""
        if self.sent is None:
            return
        data.conn.alpn_offers = (b"http/1.1",)
        data.conn.sni = self.sent.host
        self.sidecar.tls.tls_start_server(data)

    def tls_established_server(self, data: Any) -> None:
        """The provider's certificate was verified."""

    def tls_failed_server(self, _data: Any) -> None:
        """The provider's certificate was not; the answer's line says so."""
        if self.sent is not None:
            self.sent.end = "handshake-failed"

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """The head of an answer: from here on it streams by, read and let through."""
        response, sent = flow.response, self.sent
        if response is None or sent is None or sent.flow != flow.id:
            if self.refused is None:
                raise RuntimeError("an answer to a request that was not sent")
            return
        sent.first_byte = time.monotonic()
        sent.status = response.status_code
        # It has been sent. mitmproxy's flows stand in cycles, which a long body would outlive.
        flow.request.data.content = None
        sent.request_id = safe(response.headers.get("request-id", ""), 100) or None
        if flow.server_conn.peername:
            sent.upstream = safe(str(flow.server_conn.peername[0]))
        if flow.server_conn.certificate_list:
            sent.certificate = "sha256:" + flow.server_conn.certificate_list[0].fingerprint().hex()
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        for rule, broken in (
            (Rule.ANSWER_SWITCHED, response.status_code == 101),
            (Rule.ANSWER_ENCODED, encoding != "identity"),
        ):
            if broken:
                sent.end = rule
                flow.kill()
                return
        secret = self.sidecar.credential.value.encode()
        head = (response.data.reason, *(part for pair in response.headers.fields for part in pair))
        if secret and any(secret in part for part in head):
            sent.end = Rule.ANSWER_SECRET
            flow.kill()
            return
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        sent.reader = AnswerReader(event_stream=kind == "text/event-stream")
        response.stream = self._tee(sent, sent.reader, SecretCutter(secret))

    def response(self, flow: http.HTTPFlow) -> None:
        """An answer is over."""
        if self.sent is not None and self.sent.flow == flow.id:
            self._over()

    def error(self, flow: http.HTTPFlow) -> None:
        """A request or an answer broke off."""
        if self.sent is not None and self.sent.flow == flow.id:
            self._cut()

    def server_disconnected(self, data: Any) -> None:
        """The provider's connection is over."""

    def client_disconnected(self, _client: Any) -> None:
        """The session's connection is over. What is still open is closed in the log."""
        # Its clock would tell of a second refusal of what is over.
        self.progress(Progress.DONE)
        self._cut()
        if not self.lines:
            if self.connect is None:
                refused = Refused(Rule.NOTHING_ASKED)
                self.refuse(Layer.CONNECT, refused, self._asked())
            else:
                self.allow(Layer.CONNECT, self._asked(), {"detail": "nothing-asked"})

    # Helpers of the hooks.

    def _facts(self, request: http.Request) -> RequestFacts:
        return RequestFacts(
            tunnel_host=self.connect.host if self.connect and self.hello else None,
            authority=request.data.authority.decode("latin-1"),
            version=request.data.http_version.decode("latin-1"),
            method=request.data.method.decode("latin-1"),
            target=request.data.path.decode("latin-1"),
            headers=tuple(
                (name.decode("latin-1").lower(), value.decode("latin-1"))
                for name, value in request.headers.fields
            ),
            placeholder=self.sidecar.placeholder,
            credential_needed=self.sidecar.credential.kind != "none",
            used=self.sidecar.used,
            underway=self.sidecar.underway,
        )

    def _asked(self, **more: str) -> dict[str, Any]:
        known: dict[str, Any] = {}
        if self.connect is not None:
            known = {"host": safe(self.connect.host), "port": self.connect.port}
        return known | {name: safe(value) for name, value in more.items()}

    def _asked_by(self, request: http.Request) -> dict[str, Any]:
        asked = self._asked()
        if not asked:
            asked = {"host": safe(request.host), "port": request.port}
        return asked | {
            "method": safe(request.data.method.decode("latin-1"), 20),
            "path": safe(request.data.path.decode("latin-1")),
        }

    def _seal(self, request: http.Request) -> None:
        """Only named headers go on; the placeholder goes, the real credential comes."""
        headers = self.sidecar.policy.headers
        kept = [
            (name, value)
            for name, value in request.headers.fields
            if name.decode("latin-1").lower() in headers
        ]
        # An encoded answer could not be read while it streams by.
        kept.append((b"accept-encoding", b"identity"))
        credential = self.sidecar.credential.header
        if credential is not None:
            kept.append((credential[0].encode(), credential[1].encode()))
        request.headers = http.Headers(kept)

    def _tee(
        self, sent: Sent, reader: AnswerReader, cutter: SecretCutter
    ) -> Callable[[bytes], bytes]:
        def pass_on(data: bytes) -> bytes:
            try:
                self.acknowledge()
                if data and not sent.received_bytes:
                    sent.first_byte = time.monotonic()
                sent.received_bytes += len(data)
                through = cutter.feed(data)
                if cutter.found and sent.end != Rule.ANSWER_SECRET:
                    sent.end = Rule.ANSWER_SECRET
                    self.close()
                reader.feed(data)
            except Exception:  # noqa: BLE001 - what cannot be witnessed may not be let through
                self.fault("stream")
                return b""
            return through

        return pass_on

    def _cut(self) -> None:
        """The answer that is underway, if one is, did not come to its end."""
        if self.sent is not None and self.sent.end == "whole":
            self.sent.end = "cut" if self.sent.status else "failed"
        self._over()

    def _over(self) -> None:
        """Shut the gate again and write the answer's line."""
        sent, self.sent = self.sent, None
        if sent is None:
            return
        if sent.end != "whole":
            self.refused = Refused(Rule.UPSTREAM)
        self.sidecar.underway -= 1
        first = sent.first_byte
        answer = sent.reader.members() if sent.reader is not None else AnswerReader(True).members()
        self.sidecar.used = add(self.sidecar.used, _told(sent, answer), self.sidecar.prices)
        self.sidecar.log.append(
            "answer",
            {
                "connection": self.connection,
                "request": sent.number,
                "status": sent.status,
                "end": sent.end,
                "upstream": sent.upstream,
                "certificate": sent.certificate,
                "request_id": sent.request_id,
                "sent_bytes": sent.sent_bytes,
                "received_bytes": sent.received_bytes,
                "first_byte_ms": None if first is None else round((first - sent.started) * 1000, 1),
                "whole_ms": round((time.monotonic() - sent.started) * 1000, 1),
                "model_asked": sent.asked["model"],
                **answer,
            },
            durable=False,
        )


def _told(sent: Sent, answer: Mapping[str, Any]) -> Told:
    """What a bound goes by, once an answer is over."""
    arrived = sent.sent_bytes > 0 and sent.end != "handshake-failed"
    good = sent.status is None or sent.status < 400
    return Told(
        billed=sent.spends and arrived and good,
        models=(answer["model_served"], sent.asked["model"]),
        body_bytes=sent.body_bytes,
        sent_bytes=sent.sent_bytes,
        received_bytes=sent.received_bytes,
        most_output=sent.asked["max_tokens"] or 0,
        usage=answer["usage"],
        whole=answer["whole"],
    )


def _values(request: http.Request, name: bytes) -> tuple[str, ...]:
    return tuple(
        value.decode("latin-1") for key, value in request.headers.fields if key.lower() == name
    )


def _body_is_small(request: http.Request) -> bool:
    lengths = _values(request, b"content-length")
    if _values(request, b"transfer-encoding") or _values(request, b"expect"):
        return False
    return not lengths or (len(lengths) == 1 and int(lengths[0]) <= _SMALL_BODY)


def _answer(refused: Refused) -> http.Response:
    """A refusal in the provider's own shape, which the harness reports and does not retry.

    Where the provider's connection failed it may: without us it would have seen that, and retried.
    """
    wording = refused.wording
    text = f"recorder: {refused.rule}: {wording.text}"
    body = {"type": "error", "error": {"type": wording.kind, "message": text}}
    retry = "true" if refused.rule is Rule.UPSTREAM else "false"
    headers = {"content-type": "application/json", "x-should-retry": retry}
    if wording.status != 404:
        headers["connection"] = "close"
    return http.Response.make(wording.status or 403, json.dumps(body).encode() + b"\n", headers)


def _on_the_wire(refused: Refused) -> bytes:
    if not refused.status:
        return b""
    answer = _answer(refused)
    answer.headers["connection"] = "close"
    return bytes(http1.assemble_response(answer))
