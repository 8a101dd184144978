"""The sidecar in its container, spoken to through its socket from a container with no network."""

from __future__ import annotations

import json
import ssl
import struct
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.proxy.conftest import Construction
from tests.proxy.construction import (
    CONNECT,
    ESTABLISHED,
    HOST,
    PLACEHOLDER,
    SECRET,
    Exchange,
    RunningSidecar,
    configuration,
    request,
    send,
    sidecar,
    tunnel,
    until,
)
from tests.proxy.within import run_within

pytestmark = pytest.mark.engine

END = b"0\r\n\r\n"


def posted(construction: Construction, data: bytes, *reads: dict[str, Any]) -> Exchange:
    """One request through a tunnel of its own; the answer to the end of its chunks."""
    return construction.agent.run(
        [
            *tunnel(ca=construction.sidecar.certificate),
            send(data),
            *(reads or (until(END),)),
        ]
    )


def hello(server_name: str | None, *more: tuple[int, bytes]) -> bytes:
    """A ClientHello as Python makes it, with extensions put at its end."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=server_name).do_handshake()
    record = outgoing.read()
    message = bytearray(record[9:])
    at = 34
    at += 1 + message[at]
    at += 2 + struct.unpack_from("!H", message, at)[0]
    at += 1 + message[at]
    added = b"".join(struct.pack("!HH", kind, len(body)) + body for kind, body in more)
    length = struct.unpack_from("!H", message, at)[0]
    struct.pack_into("!H", message, at, length + len(added))
    message += added
    handshake = b"\x01" + len(message).to_bytes(3, "big") + bytes(message)
    return b"\x16\x03\x01" + struct.pack("!H", len(handshake)) + handshake


CLOSED = until(None, 8)


def connect(authority: str, *headers: str) -> list[dict[str, Any]]:
    lines = [f"CONNECT {authority} HTTP/1.1", *headers]
    return [send("\r\n".join(lines).encode() + b"\r\n\r\n"), CLOSED]


def plain(target: str, host: str, method: str = "POST") -> list[dict[str, Any]]:
    return [
        send(request(target=target, method=method, remove=["host"], headers=[("Host", host)])),
        CLOSED,
    ]


def inside(*args: Any, **changes: Any) -> list[dict[str, Any]]:
    return [*tunnel(), send(request(*args, **changes)), CLOSED]


def raw_inside(data: bytes) -> list[dict[str, Any]]:
    return [*tunnel(), send(data), CLOSED]


def opened(data: bytes) -> list[dict[str, Any]]:
    return [send(CONNECT), until(ESTABLISHED), send(data), CLOSED]


# Name, steps, the rule, the status that the session is told (None: closed without a word).
REFUSALS: list[tuple[str, list[dict[str, Any]], str, int | None]] = [
    ("another host", connect("github.test:443"), "connect-host", 403),
    ("a longer host", connect(f"{HOST}.example.test:443"), "connect-host", 403),
    ("a trailing dot", connect(f"{HOST}.:443"), "connect-host", 403),
    ("another case", connect("API.anthropic.com:443"), "connect-host", 403),
    ("an IDNA spelling", connect("xn--pi-7ka.anthropic.com:443"), "connect-host", 403),
    ("an IPv4 address", connect("192.0.2.1:443"), "connect-address", 403),
    ("a decimal address", connect("3221225985:443"), "connect-address", 403),
    ("a hex address", connect("0xc0000201:443"), "connect-address", 403),
    ("an IPv6 address", connect("[2001:db8::1]:443"), "connect-address", 403),
    ("a mapped address", connect("[::ffff:192.0.2.1]:443"), "connect-address", 403),
    ("port 22", connect(f"{HOST}:22"), "connect-port", 403),
    ("port 80", connect(f"{HOST}:80"), "connect-port", 403),
    ("another Host beside CONNECT", connect(f"{HOST}:443", "Host: evil.test"),
     "connect-host-header", 403),
    ("no port", connect(HOST), "head-malformed", 400),
    ("user info", connect(f"user@{HOST}:443"), "head-malformed", 400),
    ("a null byte", connect(f"evil.test\x00.{HOST}:443"), "head-control-character", 400),
    ("plain http to the provider", plain(f"http://{HOST}/v1/messages", HOST), "plain-http", 403),
    ("plain http on 443", plain(f"http://{HOST}:443/", HOST, "GET"), "plain-http", 403),
    ("plain http elsewhere", plain("http://evil.test/", "evil.test"), "plain-http", 403),
    ("https without a tunnel", plain(f"https://{HOST}/v1/messages", HOST), "plain-http", 403),
    ("origin form without a tunnel", plain("/v1/messages", HOST), "plain-http", 403),
    ("mitmproxy's own page", plain("http://mitm.it/", "mitm.it", "GET"), "plain-http", 403),
    ("no host at all", [send(b"GET / HTTP/1.1\r\n\r\n"), CLOSED], "head-malformed", 400),
    ("raw bytes in the tunnel", opened(b"SSH-2.0-x\r\n"), "not-tls", None),
    ("http in the tunnel", opened(request()), "not-tls", None),
    ("another server name", opened(hello("evil.test")), "hello-name", None),
    ("no server name", opened(hello(None)), "hello-name-absent", None),
    ("an encrypted hello", opened(hello(HOST, (0xFE0D, b"\x00" * 40))), "hello-encrypted", None),
    ("a broken hello", opened(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\xff"),
     "hello-unreadable", None),
    ("raw bytes in TLS", raw_inside(b"\x00\x01\x02\x03"), "head-control-character", 400),
    ("the preface of HTTP/2", raw_inside(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "host-header", 403),
    ("another Host", inside(remove=["host"], headers=[("Host", "evil.test")]), "host-header", 403),
    ("two Hosts", inside(headers=[("Host", HOST)]), "host-header", 403),
    ("no Host", inside(remove=["host"]), "host-header", 403),
    ("an absolute target", inside(target="https://evil.test/v1/messages"), "absolute-target", 400),
    ("CONNECT inside", raw_inside(b"CONNECT evil.test:443 HTTP/1.1\r\nHost: x\r\n\r\n"),
     "head-malformed", 400),
    ("HTTP/1.0", inside(version="HTTP/1.0"), "version", 505),
    ("a WebSocket", inside(headers=[("Upgrade", "websocket"), ("Connection", "Upgrade"),
                                    ("Sec-WebSocket-Version", "13")]), "upgrade", 403),
    ("h2c", inside(headers=[("Upgrade", "h2c"), ("HTTP2-Settings", "AAMAAABk")]), "upgrade", 403),
    ("GET", inside(method="GET"), "method", 405),
    ("another query", [*tunnel(), send(request(target="/v1/messages?beta=true&to=evil")),
                       until(b"}}\n")], "query", 404),
    ("a foreign key", inside(remove=["x-api-key"], headers=[("x-api-key", "sk-foreign")]),
     "credential-foreign", 403),
    ("a foreign bearer beside", inside(headers=[("Authorization", "Bearer sk-foreign")]),
     "credential-foreign", 403),
    ("a foreign key beside", inside(headers=[("X-Api-Key", "sk-foreign")]),
     "credential-foreign", 403),
    ("no credential", inside(remove=["x-api-key"]), "credential-absent", 401),
    ("an unnamed beta", inside(headers=[("anthropic-beta", "files-api-2025-04-14")]), "beta", 403),
    ("two lengths", inside(headers=[("Content-Length", "5")]), "head-malformed", 400),
    ("length and chunks", inside(headers=[("Transfer-Encoding", "chunked")]),
     "head-malformed", 400),
    ("chunks", raw_inside(request(remove=["content-length"],
                                  headers=[("Transfer-Encoding", "chunked")], body=b"")
                          + b"2\r\n{}\r\n0\r\n\r\n"), "body-chunked", 411),
    ("gzip", inside(headers=[("Content-Encoding", "gzip")]), "body-compressed", 415),
    ("an endless body", inside(remove=["content-length"],
                               headers=[("Content-Length", "999999999999")]), "body-too-long", 413),
    ("a bare LF in the target", raw_inside(request(target="/v1/mess\nages")),
     "head-control-character", 400),
    ("a bare LF in a header", raw_inside(request(headers=[("X-A", "b\nHost: evil.test")])),
     "head-control-character", 400),
    ("a bare CR in a header", raw_inside(request(headers=[("X-A", "b\rc")])),
     "head-control-character", 400),
    ("a folded header", raw_inside(request(headers=[("X-A", "b\r\n c")])), "head-folded", 400),
    ("a space before a colon", raw_inside(request(headers=[("X-A ", "b")])), "head-malformed", 400),
    ("10,000 headers", raw_inside(request(headers=[(f"X-{n}", "v") for n in range(10000)])),
     "head-too-many-headers", 431),
    ("150 headers", raw_inside(request(headers=[("X", "v")] * 150)), "head-too-many-headers", 431),
    ("an endless head", raw_inside(b"GET /" + b"a" * 100000), "head-too-long", 431),
    ("no JSON", inside(body=b"tools: web_search_20250305"), "body-not-json", 400),
    ("a list", inside(body=b"[]"), "body-not-json", 400),
    ("a key twice", inside(body=b'{"model":"claude-1","model":"claude-1"}'),
     "body-duplicate-key", 400),
    ("web search", inside(tools=[{"type": "web_search_20250305"}]), "server-tool", 403),
    ("MCP at the provider", inside(mcp_servers=[]), "body-mcp-servers", 403),
    ("a source by URL", inside(messages=[{"role": "user", "content": [
        {"type": "image", "source": {"type": "url", "url": "https://evil.test"}}]}]),
     "remote-source", 403),
    ("another model", inside(model="other"), "model", 403),
]  # fmt: skip


def test_each_attempt_is_refused_by_its_rule_with_one_line_and_reaches_nobody(
    construction: Construction,
) -> None:
    construction.provider.seen()
    before = len(construction.sidecar.log())
    wrong: list[str] = []
    for name, steps, rule, status in REFUSALS:
        exchange = construction.agent.run(steps)
        log = construction.sidecar.log()
        lines = [line for line in log[before:] if line["kind"] == "decision"]
        before = len(log)
        told = exchange.received[-1] if exchange.received else b""
        answered = told.split(b"\r\n", 1)[0]
        expected = b"" if status is None else f"HTTP/1.1 {status} ".encode()
        if [(line["decision"], line["rule"]) for line in lines] != [("refused", rule)]:
            wrong.append(f"{name}: {[(line['decision'], line['rule']) for line in lines]}")
        elif lines[0]["status"] != status or not answered.startswith(expected):
            wrong.append(f"{name}: told {answered!r}")
        elif status is None and len(told) > 7:
            wrong.append(f"{name}: told {told!r}")
        elif SECRET.encode() in exchange.text or b"mitmproxy" in exchange.text:
            wrong.append(f"{name}: {exchange.text!r}")
    assert wrong == []
    assert construction.provider.seen() == []


def test_an_ordinary_request_passes_streamed_sealed_and_witnessed(
    construction: Construction,
) -> None:
    construction.provider.seen()
    before = len(construction.sidecar.log())
    exchange = posted(construction, request("plain"))
    assert exchange.error is None
    assert b"MARKER" in exchange.text
    (accepted, arrived) = construction.provider.seen()
    assert accepted == {"accepted": 443}
    headers = arrived["headers"]
    assert headers["x-api-key"] == SECRET
    assert headers["accept-encoding"] == "identity"
    assert headers["anthropic-version"] == "2023-06-01"
    assert "x-not-named" not in headers
    assert PLACEHOLDER not in json.dumps(arrived)
    construction.sidecar.of_kind("answer", before, 1)
    allowed, answer = construction.sidecar.log()[before:]
    assert (allowed["decision"], allowed["layer"]) == ("allowed", "body")
    assert allowed["asked"] == {
        "host": HOST,
        "port": 443,
        "method": "POST",
        "path": "/v1/messages?beta=true",
    }
    assert answer["request"] == allowed["request"]
    assert (answer["status"], answer["end"], answer["whole"]) == (200, "whole", True)
    assert answer["message"] == "msg_test_1"
    assert answer["request_id"] == "req_test_1"
    assert answer["model_asked"] == "claude-opus-5"
    assert answer["model_served"] == "claude-opus-5-20250929"
    assert answer["usage"] == {"input_tokens": 7, "output_tokens": 3}
    assert [block["type"] for block in answer["blocks"]] == ["text"]
    assert answer["certificate"].startswith("sha256:")
    assert answer["sent_bytes"] > 0
    assert answer["received_bytes"] > 0


def test_one_connection_carries_many_requests_and_a_refusal_between_them(
    construction: Construction,
) -> None:
    construction.provider.seen()
    ca = construction.sidecar.certificate
    exchange = construction.agent.run(
        [
            *tunnel(ca=ca),
            send(request("plain")),
            until(END),
            send(request(target="/api/claude_code/settings", method="GET", body=b"")),
            until(b"}}\n"),
            send(request("plain")),
            until(END),
        ]
    )
    assert exchange.error is None
    assert exchange.received[-2].startswith(b"HTTP/1.1 404 ")
    assert exchange.received[-1].startswith(b"HTTP/1.1 200 ")
    seen = construction.provider.seen()
    assert [line for line in seen if "accepted" in line] == [{"accepted": 443}]
    assert len([line for line in seen if "method" in line]) == 2


def test_pipelined_requests_are_decided_one_by_one(construction: Construction) -> None:
    construction.provider.seen()
    both = request("plain") + request("plain", target="/v1/files")
    exchange = construction.agent.run([*tunnel(), send(both), until(END), until(b"}}\n")])
    assert exchange.received[-1].startswith(b"HTTP/1.1 404 ")
    assert [s["target"] for s in construction.provider.seen() if "target" in s] == [
        "/v1/messages?beta=true"
    ]


def test_the_session_is_offered_http_1_alone(construction: Construction) -> None:
    ca = construction.sidecar.certificate
    exchange = construction.agent.run(tunnel(HOST, ca, "h2", "http/1.1"))
    assert exchange.received[-1] == b"http/1.1"


def test_the_first_token_is_not_kept_back(construction: Construction) -> None:
    exchange = posted(construction, request("slow"), until(b"message_start"), until(END))
    connected, first, last = exchange.times[-3:]
    assert first - connected < 0.4
    assert last - first > 0.5


def test_a_secret_that_comes_back_is_cut_and_logged(construction: Construction) -> None:
    for scenario in ("echo-body", "echo-header"):
        before = len(construction.sidecar.log())
        exchange = posted(construction, request(scenario), until(None))
        assert SECRET.encode() not in exchange.text
        assert b"message_stop" not in exchange.text
        answer = construction.sidecar.of_kind("answer", before, 1)[-1]
        assert answer["end"] == "answer-carried-the-credential"
        assert SECRET not in json.dumps(answer)


@pytest.mark.parametrize(
    ("scenario", "end"),
    [
        ("encoded", "answer-encoded"),
        ("switch", "answer-switched-protocols"),
        ("drop", "failed"),
    ],
)
def test_an_answer_that_cannot_be_witnessed_does_not_pass(
    construction: Construction, scenario: str, end: str
) -> None:
    before = len(construction.sidecar.log())
    exchange = posted(construction, request(scenario), until(None))
    assert b"MARKER" not in exchange.text
    assert exchange.received[-1].startswith(b"HTTP/1.1 502 ")
    answer = construction.sidecar.of_kind("answer", before, 1)[-1]
    assert (answer["kind"], answer["end"]) == ("answer", end)


def test_a_cut_answer_and_an_error_answer_are_told_as_they_are(construction: Construction) -> None:
    before = len(construction.sidecar.log())
    cut = posted(construction, request("cut"), until(None))
    assert b"MARKER" in cut.text
    error = posted(construction, request("error"), until(b"}}"))
    assert error.received[-1].startswith(b"HTTP/1.1 529 ")
    answers = construction.sidecar.of_kind("answer", before, 2)
    assert (answers[0]["end"], answers[0]["whole"]) == ("cut", False)
    assert (answers[1]["status"], answers[1]["error"]) == (529, "overloaded_error")


def test_a_body_of_many_megabytes_arrives_whole(construction: Construction) -> None:
    big = request("size", system="x" * (8 * 1024 * 1024))
    exchange = posted(construction, big, until(b"}"))
    size = len(big) - big.index(b"\r\n\r\n") - 4
    assert f'"size": {size}'.encode() in exchange.text


def test_many_connections_at_once(construction: Construction) -> None:
    steps = [*tunnel(ca=construction.sidecar.certificate), send(request("slow")), until(END)]
    exchanges = construction.agent.run_all([steps] * 10)
    assert all(b"MARKER" in exchange.text for exchange in exchanges)
    assert max(exchange.times[-1] for exchange in exchanges) < 5


def test_a_connection_that_asks_nothing_has_its_line_too(construction: Construction) -> None:
    before = len(construction.sidecar.log())
    construction.agent.run([{"shut": True}, CLOSED])
    construction.agent.run([send(CONNECT), until(ESTABLISHED), {"shut": True}, CLOSED])
    construction.agent.run([*tunnel(), {"shut": True}])
    construction.agent.run([*tunnel(ca=construction.provider.certificate), send(b"x")])
    lines = construction.sidecar.decisions(before, 4)
    assert [(line["decision"], line["rule"], line["detail"]) for line in lines] == [
        ("refused", "nothing-asked", ""),
        ("allowed", None, "nothing-asked"),
        ("allowed", None, "nothing-asked"),
        ("refused", "handshake-failed", ""),
    ]


def test_a_provider_whose_certificate_nobody_trusts_gets_nothing(
    construction: Construction,
) -> None:
    construction.provider.seen()
    told = configuration(None)
    with sidecar(
        construction.engine, f"{construction.name}-untrusting", construction.network, told
    ) as beside:
        assert beside.said is not None
        assert beside.said["event"] == "ready"
        exchange = _from_within(beside, [*tunnel(), send(request("plain")), CLOSED])
        assert exchange.received[-1].startswith(b"HTTP/1.1 502 ")
        answer = beside.of_kind("answer", 0, 1)[-1]
        assert (answer["kind"], answer["end"]) == ("answer", "handshake-failed")
    assert not [line for line in construction.provider.seen() if "method" in line]


def test_the_end_of_the_lifeline_ends_it_with_a_whole_log(
    construction: Construction, project: Path
) -> None:
    bearer = {"kind": "bearer", "value": SECRET}
    told = configuration(construction.provider.certificate, credential=bearer)
    with sidecar(
        construction.engine, f"{construction.name}-lifeline", construction.network, told
    ) as beside:
        construction.provider.seen()
        exchange = _from_within(beside, [*tunnel(), send(request("plain")), until(END)])
        assert b"MARKER" in exchange.text
        headers = next(s["headers"] for s in construction.provider.seen() if "headers" in s)
        assert headers["authorization"] == f"Bearer {SECRET}"
        assert "x-api-key" not in headers
        status, took, reading = beside.end()
    assert status == 0
    assert took < 2
    assert reading.faults == ()
    assert (reading.allowed, reading.refused) == (1, 0)
    validator = jsonschema.Draft202012Validator(
        json.loads((project / "proxy" / "egress.schema.json").read_text())
    )
    for line in (*reading.lines, *construction.sidecar.log()):
        validator.validate(line)


def test_a_termination_ends_it_with_a_whole_log_in_mid_answer(construction: Construction) -> None:
    told = configuration(construction.provider.certificate)
    with sidecar(
        construction.engine, f"{construction.name}-terminated", construction.network, told
    ) as beside:
        exchange = _from_within(
            beside, [*tunnel(), send(request("slow")), until(b"message_start")], terminate=True
        )
        assert b"message_start" in exchange.text
        status = construction.engine.wait(beside.container, 10)
        _, _, reading = beside.end()
    assert status == 0
    assert reading.faults == ()
    assert [line["kind"] for line in reading.lines][-2:] == ["answer", "close"]
    assert reading.lines[-2]["end"] == "cut"


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (b"not json\n", "not JSON"),
        (b"{}\n", "exactly these members"),
        (json.dumps(configuration(None, policy="hosts: [")).encode() + b"\n", "policy, line 1"),
        (json.dumps(configuration(None, placeholder="x")).encode() + b"\n", "too short"),
        (json.dumps(configuration(None, placeholder=SECRET)).encode() + b"\n", "credential itself"),
        (
            json.dumps(configuration(None, credential={"kind": "key", "value": SECRET})).encode()
            + b"\n",
            "credential is",
        ),
    ],
)
def test_a_start_that_is_not_whole_fails_with_its_reason(
    construction: Construction, told: bytes, reason: str
) -> None:
    name = f"{construction.name}-refused"
    with sidecar(construction.engine, name, construction.network, told) as beside:
        assert beside.said is not None
        assert beside.said["event"] == "failed"
        assert reason in beside.said["reason"]
        assert SECRET not in json.dumps(beside.said)
        assert construction.engine.wait(beside.container, 10) == 1


def test_the_credential_is_nowhere_that_can_be_looked_at(construction: Construction) -> None:
    posted(construction, request("plain"))
    inspected = json.dumps(construction.engine.inspect(construction.sidecar.container))
    made = construction.engine.api.exec_create(
        construction.sidecar.container, ["cat", "/proc/1/cmdline", "/proc/1/environ"]
    )
    process = construction.engine.api.exec_start(made["Id"]).decode()
    assert "main.py" in process
    log = json.dumps(construction.sidecar.log())
    for where in (inspected, process, log, bytes(construction.sidecar.lines.errors)):
        text = where if isinstance(where, str) else where.decode()
        assert SECRET not in text
        assert PLACEHOLDER not in text


def _from_within(
    beside: RunningSidecar, steps: list[dict[str, Any]], *, terminate: bool = False
) -> Exchange:
    """The same steps, run inside the sidecar's own container: it has no agent beside it."""
    exchange = run_within(beside, steps)
    if terminate:
        beside.engine.kill(beside.container, "TERM")
    return exchange
