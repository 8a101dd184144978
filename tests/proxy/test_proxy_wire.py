"""Any bytes at the sidecar's HTTP reader: no exception, and nothing leaves that a strict reader,
written apart, does not read as the same request and let leave."""

from __future__ import annotations

import base64
import itertools
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from recorder.engine.client import open_engine
from recorder.engine.connect import docker_host
from tests.proxy.construction import Lines, running, script
from tests.proxy.heads import HOST, connects, may_leave, strictly, strictly_all
from tests.proxy.readings import READERS, reaches_out

BODY = b'{"model":"claude-opus-5","max_tokens":5,"messages":[]}'
REQUEST = (
    f"POST /v1/messages?beta=true HTTP/1.1\r\nHost: {HOST}\r\nx-api-key: placeholder\r\n"
    f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n"
    "anthropic-version: 2023-06-01\r\n\r\n"
).encode() + BODY
CONNECT = f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\nUser-Agent: x\r\n\r\n".encode()

# Pieces of what walks around readers: line ends, lengths, hosts, spaces, other forms and versions.
_PIECES = st.sampled_from(
    [
        *(
            b"\r",
            b"\n",
            b"\r\n",
            b"\r\n\r\n",
            b"\n\n",
            b"\r\n ",
            b"\0",
            b"\x0b",
            b"\x0c",
            b"\t",
            b" ",
        ),
        *(b"\xa0", b"\xc3\xa9", b"\x85", b":", b"/", b"//", b"%2f", b"?", b"#", b"..", b"@", b"\\"),
        *(b"Content-Length: 0\r\n", b"Content-Length: 5\r\n", b"content-length : 3\r\n"),
        *(b"Content-Length: +54\r\n", b"Content-Length: 54, 54\r\n", b"Content-Length: 0x36\r\n"),
        *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding : x\r\n", b"TE: trailers\r\n"),
        *(b"Transfer-Encoding: identity\r\n", b"Transfer_Encoding: chunked\r\n"),
        *(b"Host: evil.test\r\n", b"Host: evil.test, api.anthropic.com\r\n", b"host:\r\n"),
        *(b"x-api-key: foreign\r\n", b"Authorization: Bearer foreign\r\n", b"Cookie: a=b\r\n"),
        *(b"Upgrade: websocket\r\nConnection: upgrade\r\n", b"Expect: 100-continue\r\n"),
        *(b"HTTP/1.0", b"HTTP/2.0", b"HTTP/1.1 ", b"GET ", b"https://evil.test", b"evil.test:443"),
        *(
            b"http://api.anthropic.com/v1/messages",
            b"OPTIONS * HTTP/1.1\r\n\r\n",
            b"PRI * HTTP/2.0",
        ),
        *(
            b"127.0.0.1",
            b"[::1]",
            b"api.anthropic.com.",
            b"API.ANTHROPIC.COM",
            b":22",
            b"54",
            b"55",
        ),
        REQUEST,
        b"POST /v1/files HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    ]
)


def _changed(start: bytes) -> st.SearchStrategy[bytes]:
    """The bytes with up to four changes: a piece put in, some bytes taken out, one changed, a line
    twice."""
    place = st.integers(0, len(start))

    @st.composite
    def change(draw: st.DrawFn) -> bytes:
        data = start
        for _ in range(draw(st.integers(0, 4))):
            at = draw(place) % (len(data) + 1)
            match draw(
                st.sampled_from(["put in", "put in", "at a line", "take out", "set", "twice"])
            ):
                case "put in":
                    data = data[:at] + draw(_PIECES) + data[at:]
                case "at a line":
                    at = data.find(b"\r\n", at) + 2 if data.find(b"\r\n", at) >= 0 else at
                    data = data[:at] + draw(_PIECES) + data[at:]
                case "take out":
                    data = data[:at] + data[at + draw(st.integers(1, 30)) :]
                case "set":
                    data = data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]
                case "twice":
                    lines = data.split(b"\r\n")
                    line = lines[at % len(lines)]
                    data = b"\r\n".join([*lines[:1], line, *lines[1:]])
        return data

    return change()


@st.composite
def _pieces(draw: st.DrawFn, start: bytes) -> list[bytes]:
    """The bytes as they arrive: whole, cut anywhere, or one by one for a while."""
    data = draw(_changed(start))
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=4)))
    ends = [0, *cuts, len(data)]
    return [data[a:b] for a, b in itertools.pairwise(ends) if a < b]


@dataclass
class Wire:
    lines: Lines

    def put(self, pieces: list[bytes], *, tunnel: bool) -> dict[str, Any]:
        told = [base64.b64encode(piece).decode() for piece in pieces]
        self.lines.tell({"tunnel": tunnel, "pieces": told})
        answer = self.lines.next()
        assert answer is not None, bytes(self.lines.errors)
        return answer


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    engine = open_engine(docker_host())
    name = f"recorder-check-{secrets.token_hex(4)}-wire"
    try:
        with running(engine, name, script("wire.py", NetworkMode="none")) as lines:
            assert lines.next() == {"event": "ready"}, bytes(lines.errors)
            yield Wire(lines)
    finally:
        engine.close()


def check_request(wire: Wire, pieces: list[bytes]) -> bool:
    """Bytes in an open tunnel; whether something would have left."""
    data = b"".join(pieces)
    came = wire.put(pieces, tunnel=True)
    decisions = [line for line in came["lines"] if line["kind"] == "decision"]
    allowed = [line for line in decisions if line["decision"] == "allowed"]
    answer = base64.b64decode(came["answered"])
    assert came["error"] is None, (data, came["error"])
    assert b"mitmproxy" not in answer.lower()
    assert b"sk-real-credential" not in answer
    if not came["sent"]:
        assert allowed == []
        # Whoever asked in whole is answered or closed upon, and has its line.
        assert decisions or not came["closed"] or not data or strictly(data) is None, data
        return False
    method, target, headers, body = came["read"]
    # What was refused with 404 is answered, and the connection stays: the next request counts.
    strict = next(
        (
            asked
            for asked in strictly_all(data)
            if (asked.method, asked.target, asked.body) == (method, target, base64.b64decode(body))
        ),
        None,
    )
    assert strict is not None, data
    # An expectation is answered by the reader itself, and what else asks for one is in no policy's
    # list of headers.
    read = [(name.lower(), value) for name, value in headers if name.lower() != "expect"]
    assert read == [header for header in strict.headers if header[0] != "expect"]
    assert may_leave(strict), data
    for reader in READERS:
        assert list(reaches_out(reader.read(strict.body))) == []
    assert len(allowed) == 1
    assert [line["status"] for line in decisions[:-1]] == [404] * (len(decisions) - 1)
    return True


def check_connect(wire: Wire, pieces: list[bytes]) -> bool:
    data = b"".join(pieces)
    came = wire.put(pieces, tunnel=False)
    assert came["error"] is None, (data, came["error"])
    assert not came["sent"], data
    assert b"mitmproxy" not in base64.b64decode(came["answered"]).lower()
    if came["connected"]:
        assert connects(data), data
    return bool(came["connected"])


_FEW = settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
_MANY = settings(
    max_examples=10_000,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@_FEW
@example([REQUEST])
@example([bytes([byte]) for byte in REQUEST])
@given(_pieces(REQUEST))
def test_nothing_leaves_that_a_strict_reader_does_not_let_leave(
    wire: Wire, pieces: list[bytes]
) -> None:
    check_request(wire, pieces)


@_FEW
@example([CONNECT])
@given(_pieces(CONNECT))
def test_no_tunnel_opens_that_a_strict_reader_does_not_open(
    wire: Wire, pieces: list[bytes]
) -> None:
    check_connect(wire, pieces)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@_MANY
@given(_pieces(REQUEST))
def test_nothing_leaves_by_accident_at_length(wire: Wire, pieces: list[bytes]) -> None:
    check_request(wire, pieces)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@_MANY
@given(_pieces(CONNECT))
def test_no_tunnel_opens_by_accident_at_length(wire: Wire, pieces: list[bytes]) -> None:
    check_connect(wire, pieces)


def test_the_request_unchanged_leaves_and_the_connect_unchanged_opens(wire: Wire) -> None:
    assert check_request(wire, [REQUEST])
    assert check_request(wire, [REQUEST[:50], REQUEST[50:]])
    assert check_connect(wire, [CONNECT])
