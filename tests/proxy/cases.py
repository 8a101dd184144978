"""One named attempt a rule: what is asked, and the rule that has to refuse it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from proxy.bounds import Bounds, Rates, Used
from proxy.decision import (
    BodyFacts,
    ConnectFacts,
    Facts,
    HeadFacts,
    HelloFacts,
    OpeningFacts,
    RequestFacts,
    Rule,
)
from proxy.policy import Policy, load, shipped

HOST = "api.anthropic.com"
POLICY = load(shipped("anthropic"), "anthropic.yaml")
BOUND = replace(POLICY, bounds=Bounds(5, 10, 20, 30, Decimal("0.5")))
SMALL = replace(POLICY, limits=replace(POLICY.limits, body_bytes=10))
FEW = replace(POLICY, limits=replace(POLICY.limits, messages=2, blocks=3, nodes=40))
FULL = POLICY.limits.log_bytes
PRICES = {"claude-opus-5": Rates(Decimal(5), Decimal(25))}

HEADERS = (
    ("host", HOST),
    ("x-api-key", "placeholder"),
    ("content-type", "application/json"),
    ("content-length", "2"),
)
REQUEST = RequestFacts(
    tunnel_host=HOST,
    authority="",
    version="HTTP/1.1",
    method="POST",
    target="/v1/messages?beta=true",
    headers=HEADERS,
    placeholder="placeholder",
)
DOCUMENT: dict[str, Any] = {"model": "claude-opus-5", "max_tokens": 10, "messages": []}


@dataclass(frozen=True)
class Case:
    """`expected` is None for what has to pass."""

    name: str
    facts: Facts
    expected: Rule | None
    policy: Policy = POLICY


def headed(*changes: tuple[str, str | None], **members: Any) -> RequestFacts:
    """A request with other headers: a pair replaces those of its name, None removes them."""
    names = {name for name, _ in changes}
    kept = [pair for pair in HEADERS if pair[0] not in names]
    added = [(name, value) for name, value in changes if value is not None]
    return replace(REQUEST, headers=(*kept, *added), **members)


def body(**members: Any) -> BodyFacts:
    return BodyFacts(json.dumps({**DOCUMENT, **members}).encode())


def told(contents: list[Any]) -> BodyFacts:
    return body(messages=[{"content": content} for content in contents])


def text(body: str) -> BodyFacts:
    return BodyFacts(body.encode())


def used(**amounts: Any) -> RequestFacts:
    return replace(REQUEST, used=Used(**amounts))


_TEXT = {"text": ""}
_SNI, _ECH = 0, 0xFE0D
_LINE = b"POST / HTTP/1.1"
_IMAGE = {"type": "image", "source": {"type": "url", "url": "https://evil.test"}}

CASES = (
    Case("an ordinary connect", ConnectFacts(HOST, 443, (f"{HOST}:443",)), None),
    Case("another host", ConnectFacts("evil.test", 443), Rule.CONNECT_HOST),
    Case("an address", ConnectFacts("192.0.2.1", 443), Rule.CONNECT_ADDRESS),
    Case("an address in octal", ConnectFacts("0300.0.2.1", 443), Rule.CONNECT_ADDRESS),
    Case("another port", ConnectFacts(HOST, 22), Rule.CONNECT_PORT),
    Case("another host beside", ConnectFacts(HOST, 443, ("evil.test",)), Rule.CONNECT_HOST_HEADER),
    Case("ordinary TLS", OpeningFacts(b"\x16\x03\x01"), None),
    Case("no TLS", OpeningFacts(b"GET"), Rule.NOT_TLS),
    Case("an ordinary hello", HelloFacts(HOST, HOST, (_SNI,)), None),
    Case("no name", HelloFacts(HOST, None, ()), Rule.HELLO_NAME_ABSENT),
    Case("another name", HelloFacts(HOST, "evil.test", (_SNI,)), Rule.HELLO_NAME),
    Case("two names", HelloFacts(HOST, HOST, (_SNI, _SNI)), Rule.HELLO_NAME),
    Case("a hidden name", HelloFacts(HOST, HOST, (_SNI, _ECH)), Rule.HELLO_ENCRYPTED),
    Case("an ordinary head", HeadFacts(_LINE + b"\r\nHost: a", whole=True), None),
    Case("150 headers", HeadFacts(_LINE + b"\r\na: b" * 150, whole=True), Rule.HEAD_TOO_MANY),
    Case("an endless head", HeadFacts(b"a" * 65537, whole=False), Rule.HEAD_TOO_LONG),
    Case("a bare LF", HeadFacts(_LINE + b"\r\na: b\nc", whole=True), Rule.HEAD_CONTROL),
    Case("a folded header", HeadFacts(_LINE + b"\r\na: b\r\n c", whole=True), Rule.HEAD_FOLDED),
    Case("no request line", HeadFacts(b"POST /", whole=True), Rule.HEAD_MALFORMED),
    Case("a tunnel of no version we know",
         HeadFacts(b"CONNECT a:443 HTTP/0.1\r\nHost: a:443", whole=True), Rule.VERSION),
    Case("a space before a colon", HeadFacts(_LINE + b"\r\na : b", whole=True),
         Rule.HEAD_MALFORMED),
    Case("an ordinary request", REQUEST, None),
    Case("in the clear", replace(REQUEST, tunnel_host=None), Rule.PLAIN_HTTP),
    Case("in another tunnel", headed(("host", "evil.test"), tunnel_host="evil.test"),
         Rule.CONNECT_HOST),
    Case("Host of another", headed(("host", "evil.test")), Rule.HOST_HEADER),
    Case("a target with a host", replace(REQUEST, authority=HOST), Rule.ABSOLUTE_TARGET),
    Case("HTTP/1.0", replace(REQUEST, version="HTTP/1.0"), Rule.VERSION),
    Case("an upgrade", headed(("upgrade", "websocket")), Rule.UPGRADE),
    Case("an upgrade by another name", headed(("connection", "upgrade")), Rule.UPGRADE),
    Case("another path", replace(REQUEST, target="/v1/files"), Rule.PATH),
    Case("another method", replace(REQUEST, method="GET"), Rule.METHOD),
    Case("another query", replace(REQUEST, target="/v1/messages?x=1"), Rule.QUERY),
    Case("no credential", headed(("x-api-key", None)), Rule.CREDENTIAL_ABSENT),
    Case("a foreign key", headed(("x-api-key", "foreign")), Rule.CREDENTIAL_FOREIGN),
    Case("a foreign bearer beside", headed(("authorization", "Bearer foreign")),
         Rule.CREDENTIAL_FOREIGN),
    Case("another beta", headed(("anthropic-beta", "files-api-2025-04-14")), Rule.BETA),
    Case("chunks and a length", headed(("transfer-encoding", "chunked")), Rule.LENGTH_CONFLICT),
    Case("chunks", headed(("transfer-encoding", "chunked"), ("content-length", None)),
         Rule.CHUNKED),
    Case("a length with a sign", headed(("content-length", "+2")), Rule.LENGTH_CONFLICT),
    Case("compressed", headed(("content-encoding", "gzip")), Rule.COMPRESSED),
    Case("a form", headed(("content-type", "text/plain")), Rule.MEDIA_TYPE),
    Case("another charset", headed(("content-type", "application/json; charset=utf-7")),
         Rule.MEDIA_TYPE),
    Case("a length over the limit", headed(("content-length", "33554433")), Rule.TOO_LONG),
    Case("too many at once", replace(REQUEST, underway=32), Rule.TOO_MANY_AT_ONCE),
    Case("within every bound", used(requests=4, bytes=9), None, BOUND),
    Case("requests used up", used(requests=5), Rule.BOUND_REQUESTS, BOUND),
    Case("bytes used up", used(bytes=10), Rule.BOUND_BYTES, BOUND),
    Case("tokens in used up", used(input_tokens=20), Rule.BOUND_INPUT_TOKENS, BOUND),
    Case("tokens out used up", used(output_tokens=30), Rule.BOUND_OUTPUT_TOKENS, BOUND),
    Case("dollars used up", used(dollars=Decimal("0.5")), Rule.BOUND_DOLLARS, BOUND),
    Case("an ordinary body", body(), None),
    Case("a body over the limit", body(), Rule.TOO_LONG, SMALL),
    Case("a log almost full", replace(body(), log_bytes=FULL - 1), None),
    Case("a log that is full", replace(body(), log_bytes=FULL), Rule.LOG_FULL),
    Case("as many nodes as may be", body(system=[1] * 30), None, FEW),
    Case("a node too many", body(system=[1] * 31), Rule.NODES, FEW),
    Case("as much as may be told", told(["x", [_TEXT, _TEXT]]), None, FEW),
    Case("a message too many", told(["", "", ""]), Rule.MESSAGES, FEW),
    Case("a block too many", told([[_TEXT, _TEXT, _TEXT, _TEXT]]), Rule.BLOCKS, FEW),
    Case("a block too many in a result", told([[_TEXT, {"content": [_TEXT, _TEXT]}]]),
         Rule.BLOCKS, FEW),
    Case("no JSON", text("tools"), Rule.NOT_JSON),
    Case("a list", text("[]"), Rule.NOT_JSON),
    Case("a number that is none", text('{"model":"claude-opus-5","top_p":NaN}'), Rule.NOT_JSON),
    Case("a number without end", text('{"model":"claude-opus-5","top_p":1e400}'), Rule.NOT_JSON),
    Case("half a character", text('{"model":"claude-opus-5","system":"\\ud800"}'), Rule.NOT_JSON),
    Case("a key twice", text('{"model":"claude-opus-5","model":"claude-opus-5"}'),
         Rule.DUPLICATE_KEY),
    Case("a key in another case", body(system=[{"Type": "x"}]), Rule.AMBIGUOUS_KEY),
    Case("MCP at the provider", body(mcp_servers=[]), Rule.MCP_SERVERS),
    Case("a container", body(container="x"), Rule.CONTAINER),
    Case("another key", body(unheard_of=1), Rule.BODY_KEY),
    Case("a service tier", body(service_tier="priority"), Rule.SERVICE_TIER),
    Case("another model", body(model="gpt-5"), Rule.MODEL),
    Case("another model to fall back to", body(fallbacks=["gpt-5"]), Rule.MODEL),
    Case("too many tokens", body(max_tokens=128001), Rule.MAX_TOKENS),
    Case("tools that are no list", body(tools={}), Rule.TOOLS),
    Case("web search", body(tools=[{"type": "web_search_20250305"}]), Rule.SERVER_TOOL),
    Case("an image by its address", body(system=[_IMAGE]), Rule.SOURCE),
    Case("an upload", body(system=[{"type": "container_upload", "file_id": "f"}]), Rule.SOURCE),
    Case("a model without a price", BodyFacts(body().body, {}), Rule.PRICE_UNKNOWN, BOUND),
    Case("a model with one", BodyFacts(body().body, PRICES), None, BOUND),
)  # fmt: skip
