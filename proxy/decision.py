"""May this pass? `decide(policy, facts)` is a pure function: allowed, or the rule that refused.

Facts are gathered by the hooks of `addon`, one kind a layer, in the order in which a connection
meets them: Connect, Opening, Hello, Head (raw bytes), Request (parsed head), Body. A later layer
relies on the earlier ones having been allowed.
"""

from __future__ import annotations

import codecs
import enum
import ipaddress
import itertools
import json
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.bounds import Prices, Used, rates_of
from proxy.policy import Policy

ENCRYPTED_CLIENT_HELLO = 0xFE0D
_SERVER_NAME_EXTENSION = 0


class Layer(enum.StrEnum):
    """Where a decision was made."""

    CONNECT = "connect"
    OPENING = "opening"
    HELLO = "hello"
    HEAD = "head"
    REQUEST = "request"
    BODY = "body"
    DIAL = "dial"
    ANSWER = "answer"
    FAULT = "fault"


class Rule(enum.StrEnum):
    """The rules that refuse. The value is the word in the log."""

    CONNECT_ADDRESS = "connect-address"
    CONNECT_HOST = "connect-host"
    CONNECT_PORT = "connect-port"
    CONNECT_HOST_HEADER = "connect-host-header"
    NOT_TLS = "not-tls"
    NOTHING_ASKED = "nothing-asked"
    HELLO_NAME_ABSENT = "hello-name-absent"
    HELLO_NAME = "hello-name"
    HELLO_ENCRYPTED = "hello-encrypted"
    HELLO_UNREADABLE = "hello-unreadable"
    HANDSHAKE = "handshake-failed"
    HEAD_TOO_LONG = "head-too-long"
    HEAD_TOO_SLOW = "head-too-slow"
    HEAD_TOO_MANY = "head-too-many-headers"
    HEAD_CONTROL = "head-control-character"
    HEAD_FOLDED = "head-folded"
    HEAD_MALFORMED = "head-malformed"
    PLAIN_HTTP = "plain-http"
    HOST_HEADER = "host-header"
    ABSOLUTE_TARGET = "absolute-target"
    VERSION = "version"
    UPGRADE = "upgrade"
    PATH = "path"
    METHOD = "method"
    QUERY = "query"
    CREDENTIAL_ABSENT = "credential-absent"
    CREDENTIAL_FOREIGN = "credential-foreign"
    BETA = "beta"
    LENGTH_CONFLICT = "length-conflict"
    CHUNKED = "body-chunked"
    COMPRESSED = "body-compressed"
    MEDIA_TYPE = "body-media-type"
    TOO_LONG = "body-too-long"
    LOG_FULL = "log-full"
    NODES = "body-too-many-nodes"
    MESSAGES = "body-too-many-messages"
    BLOCKS = "body-too-many-blocks"
    NOT_JSON = "body-not-json"
    DUPLICATE_KEY = "body-duplicate-key"
    AMBIGUOUS_KEY = "body-ambiguous-key"
    MCP_SERVERS = "body-mcp-servers"
    CONTAINER = "body-container"
    BODY_KEY = "body-key"
    MODEL = "model"
    MAX_TOKENS = "max-tokens"
    SERVICE_TIER = "service-tier"
    TOOLS = "tools-not-a-list"
    SERVER_TOOL = "server-tool"
    SOURCE = "remote-source"
    BOUND_REQUESTS = "bound-requests"
    BOUND_BYTES = "bound-bytes"
    BOUND_INPUT_TOKENS = "bound-input-tokens"
    BOUND_OUTPUT_TOKENS = "bound-output-tokens"
    BOUND_DOLLARS = "bound-dollars"
    PRICE_UNKNOWN = "price-unknown"
    TOO_MANY_AT_ONCE = "too-many-at-once"
    TOO_MANY_CONNECTIONS = "too-many-connections"
    NOT_DECIDED = "not-decided"
    UPSTREAM = "upstream-failed"
    ANSWER_SWITCHED = "answer-switched-protocols"
    ANSWER_ENCODED = "answer-encoded"
    ANSWER_SECRET = "answer-carried-the-credential"  # noqa: S105
    FAULT = "fault"


@dataclass(frozen=True)
class Wording:
    """How a refusal is told to the session: HTTP status (0: closed without a word), error type."""

    status: int
    kind: str
    text: str


_DEFAULT = Wording(403, "permission_error", "this session may not send that")
_INVALID = "invalid_request_error"

WORDINGS: Mapping[Rule, Wording] = {
    Rule.CONNECT_ADDRESS: Wording(403, "permission_error", "no addresses, only the named host"),
    Rule.CONNECT_HOST: Wording(403, "permission_error", "this session reaches no other host"),
    Rule.CONNECT_PORT: Wording(403, "permission_error", "this session reaches no other port"),
    Rule.NOT_TLS: Wording(0, "", ""),
    Rule.NOTHING_ASKED: Wording(0, "", ""),
    Rule.HELLO_NAME_ABSENT: Wording(0, "", ""),
    Rule.HELLO_NAME: Wording(0, "", ""),
    Rule.HELLO_ENCRYPTED: Wording(0, "", ""),
    Rule.HELLO_UNREADABLE: Wording(0, "", ""),
    Rule.HANDSHAKE: Wording(0, "", ""),
    Rule.NOT_DECIDED: Wording(0, "", ""),
    Rule.FAULT: Wording(0, "", ""),
    Rule.ANSWER_SECRET: Wording(0, "", ""),
    Rule.HEAD_TOO_LONG: Wording(431, _INVALID, "the request's head is too long"),
    Rule.HEAD_TOO_SLOW: Wording(0, "", ""),
    Rule.HEAD_TOO_MANY: Wording(431, _INVALID, "the request has too many headers"),
    Rule.HEAD_CONTROL: Wording(400, _INVALID, "the head holds a control or foreign character"),
    Rule.HEAD_FOLDED: Wording(400, _INVALID, "a header goes on in the next line"),
    Rule.HEAD_MALFORMED: Wording(400, _INVALID, "the head is not well-formed HTTP/1.1"),
    Rule.PLAIN_HTTP: Wording(403, "permission_error", "nothing leaves without TLS"),
    Rule.HOST_HEADER: Wording(403, "permission_error", "Host is not the host of the tunnel"),
    Rule.ABSOLUTE_TARGET: Wording(400, _INVALID, "the target names a host of its own"),
    Rule.VERSION: Wording(505, _INVALID, "HTTP/1.1 only"),
    Rule.UPGRADE: Wording(403, "permission_error", "no change of protocol"),
    Rule.PATH: Wording(404, "not_found_error", "this session knows no such path"),
    Rule.METHOD: Wording(405, _INVALID, "not with this method"),
    Rule.QUERY: Wording(404, "not_found_error", "this session knows no such query"),
    Rule.CREDENTIAL_ABSENT: Wording(401, "authentication_error", "no credential"),
    Rule.CREDENTIAL_FOREIGN: Wording(403, "permission_error", "not this session's credential"),
    Rule.BETA: Wording(403, "permission_error", "a beta that the policy does not name"),
    Rule.LENGTH_CONFLICT: Wording(400, _INVALID, "the body's length is stated wrongly or twice"),
    Rule.CHUNKED: Wording(411, _INVALID, "a body needs its length, not chunks"),
    Rule.COMPRESSED: Wording(415, _INVALID, "the body is compressed"),
    Rule.MEDIA_TYPE: Wording(415, _INVALID, "the body is not declared as JSON"),
    Rule.TOO_LONG: Wording(413, "request_too_large", "the body is too long"),
    Rule.LOG_FULL: Wording(403, "permission_error", "this session's egress log is full"),
    Rule.NODES: Wording(413, "request_too_large", "the body's JSON has too many parts"),
    Rule.MESSAGES: Wording(413, "request_too_large", "the body has too many messages"),
    Rule.BLOCKS: Wording(413, "request_too_large", "the body's messages have too many blocks"),
    Rule.NOT_JSON: Wording(400, _INVALID, "the body is not one JSON object"),
    Rule.DUPLICATE_KEY: Wording(400, _INVALID, "a key stands twice in one object"),
    Rule.AMBIGUOUS_KEY: Wording(400, _INVALID, "a key that some readers take for another"),
    Rule.MCP_SERVERS: Wording(403, "permission_error", "the provider may reach no MCP server"),
    Rule.CONTAINER: Wording(403, "permission_error", "the provider may run no container"),
    Rule.BODY_KEY: Wording(403, "permission_error", "a body key that the policy does not name"),
    Rule.MODEL: Wording(403, "permission_error", "a model that the policy does not name"),
    Rule.MAX_TOKENS: Wording(403, "permission_error", "more output tokens than the policy allows"),
    Rule.SERVICE_TIER: Wording(403, "permission_error", "a service tier the policy does not name"),
    Rule.TOOLS: Wording(400, _INVALID, "tools is not a list of objects"),
    Rule.SERVER_TOOL: Wording(403, "permission_error", "a tool that the provider would run"),
    Rule.SOURCE: Wording(403, "permission_error", "a source that the provider would fetch"),
    Rule.BOUND_REQUESTS: Wording(403, "permission_error", "this session's requests are used up"),
    Rule.BOUND_BYTES: Wording(403, "permission_error", "this session's bytes are used up"),
    Rule.BOUND_INPUT_TOKENS: Wording(403, "permission_error", "its tokens in are used up"),
    Rule.BOUND_OUTPUT_TOKENS: Wording(403, "permission_error", "its tokens out are used up"),
    Rule.BOUND_DOLLARS: Wording(403, "permission_error", "this session's dollars are used up"),
    Rule.PRICE_UNKNOWN: Wording(
        403, "permission_error", "this session is bound in dollars, and the model has no price"
    ),
    Rule.TOO_MANY_AT_ONCE: Wording(429, "rate_limit_error", "too many requests at once"),
    Rule.TOO_MANY_CONNECTIONS: Wording(0, "", ""),
    Rule.UPSTREAM: Wording(502, "api_error", "the provider could not be reached safely"),
    Rule.ANSWER_SWITCHED: Wording(502, "api_error", "the provider changed the protocol"),
    Rule.ANSWER_ENCODED: Wording(502, "api_error", "the answer is encoded and cannot be read"),
}


@dataclass(frozen=True)
class Allowed:
    """It may pass on to the next layer; after Body, it may leave. `document`: the parsed body."""

    document: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Refused:
    """It may not. `detail` is the name that tripped the rule (a tool type, a key), if one did."""

    rule: Rule
    detail: str = ""

    @property
    def wording(self) -> Wording:
        return WORDINGS.get(self.rule, _DEFAULT)

    @property
    def status(self) -> int:
        return self.wording.status


@dataclass(frozen=True)
class ConnectFacts:
    """A CONNECT request: the authority's two halves, and every Host header beside it."""

    host: str
    port: int
    host_headers: tuple[str, ...] = ()


@dataclass(frozen=True)
class OpeningFacts:
    """The first bytes inside the tunnel."""

    first_bytes: bytes


@dataclass(frozen=True)
class HelloFacts:
    """A ClientHello: its one server name (None: none, or not exactly one), its extension types."""

    connect_host: str
    server_name: str | None
    extensions: tuple[int, ...] = ()


@dataclass(frozen=True)
class HeadFacts:
    """A request's head as it came, without the empty line that ends it. `whole` is False while
    that line is still missing."""

    head: bytes
    whole: bool


@dataclass(frozen=True)
class RequestFacts:
    """A parsed head. `tunnel_host` is the CONNECT host whose TLS carried it, None in the clear.

    `authority` is the host that an absolute-form target names ("" for the usual origin form);
    `target` is path and query as they came; header names are in lower case. `placeholder` is what
    a credential header must hold. `used` is what the session has used so far, `underway` how many
    of its requests are not answered yet.
    """

    tunnel_host: str | None
    authority: str
    version: str
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    placeholder: str = field(repr=False)
    credential_needed: bool = True
    used: Used = field(default_factory=Used)
    underway: int = 0

    def values(self, name: str) -> tuple[str, ...]:
        return tuple(value for key, value in self.headers if key == name)


@dataclass(frozen=True)
class BodyFacts:
    """A whole body, the very bytes that would leave. `prices`: what a bound in dollars goes by.

    `log_bytes` is how long the egress log is before this body's own line.
    """

    body: bytes = field(repr=False)
    prices: Prices = field(default_factory=dict, repr=False)
    log_bytes: int = 0


Facts = ConnectFacts | OpeningFacts | HelloFacts | HeadFacts | RequestFacts | BodyFacts


def decide(policy: Policy, facts: Facts) -> Allowed | Refused:
    """Decide one layer. Never raises for anything a session can send."""
    match facts:
        case ConnectFacts():
            return _connect(policy, facts)
        case OpeningFacts():
            return _opening(facts)
        case HelloFacts():
            return _hello(facts)
        case HeadFacts():
            return _head(policy, facts)
        case RequestFacts():
            return _request(policy, facts)
        case BodyFacts():
            return _body(policy, facts)


def is_address(host: str) -> bool:
    """Is this an IP address in a spelling that some resolver takes: dotted, decimal, octal, hex,
    short (127.1), IPv6, mapped, with a zone or in brackets?"""
    bare = host.strip("[]").rstrip(".").partition("%")[0]
    try:
        ipaddress.ip_address(bare)
    except ValueError:
        return bool(re.fullmatch(r"(0[xX][0-9a-fA-F]*|\d+)(\.(0[xX][0-9a-fA-F]*|\d+)){0,3}", bare))
    return True


def _connect(policy: Policy, facts: ConnectFacts) -> Allowed | Refused:
    # Compared letter by letter: another case, a trailing dot, a null byte or an IDNA spelling is
    # another host. The harness writes the name as the policy does.
    if facts.host not in policy.hosts:
        rule = Rule.CONNECT_ADDRESS if is_address(facts.host) else Rule.CONNECT_HOST
        return Refused(rule)
    if facts.port != policy.port:
        return Refused(Rule.CONNECT_PORT)
    spellings = (facts.host, f"{facts.host}:{facts.port}")
    if len(facts.host_headers) > 1 or any(each not in spellings for each in facts.host_headers):
        return Refused(Rule.CONNECT_HOST_HEADER)
    return Allowed()


def _opening(facts: OpeningFacts) -> Allowed | Refused:
    # A TLS record of the kind handshake, version 3.x. Shorter prefixes wait for more bytes.
    expected = b"\x16\x03"
    first = facts.first_bytes[:2]
    if first != expected[: len(first)] or (facts.first_bytes[2:3] > b"\x04"):
        return Refused(Rule.NOT_TLS)
    return Allowed()


def _hello(facts: HelloFacts) -> Allowed | Refused:
    if facts.server_name is None:
        return Refused(Rule.HELLO_NAME_ABSENT)
    if facts.server_name != facts.connect_host:
        return Refused(Rule.HELLO_NAME)
    if facts.extensions.count(_SERVER_NAME_EXTENSION) != 1:
        return Refused(Rule.HELLO_NAME)
    if ENCRYPTED_CLIENT_HELLO in facts.extensions:
        return Refused(Rule.HELLO_ENCRYPTED)
    return Allowed()


# Visible ASCII, space and tab, in lines that end in CRLF. Bare CR and bare LF are what smuggled
# requests are made of; letters beyond ASCII are read in different ways.
_BAD_BYTE = re.compile(rb"\r(?!\n)|(?<!\r)\n|[^\r\n\t\x20-\x7e]")


def _head(policy: Policy, facts: HeadFacts) -> Allowed | Refused:
    head = facts.head
    if head.count(b"\n") > policy.limits.headers:
        return Refused(Rule.HEAD_TOO_MANY)
    if len(head) > policy.limits.head_bytes:
        return Refused(Rule.HEAD_TOO_LONG)
    # While the end is missing, the last byte may be a CR whose LF is still to come.
    bad = _BAD_BYTE.search(head)
    if bad and (facts.whole or bad.group() != b"\r" or bad.end() < len(head)):
        return Refused(Rule.HEAD_CONTROL)
    if not facts.whole:
        return Allowed()
    lines = head.split(b"\r\n")
    if any(line[:1] in (b" ", b"\t") for line in lines[1:]):
        return Refused(Rule.HEAD_FOLDED)
    if not re.fullmatch(rb"[A-Za-z]+ [^ \t]+ HTTP/\d\.\d", lines[0]):
        return Refused(Rule.HEAD_MALFORMED)
    if lines[0][:8].upper() == b"CONNECT " and not lines[0].endswith((b" HTTP/1.1", b" HTTP/1.0")):
        return Refused(Rule.VERSION)
    if not all(re.match(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:", line) for line in lines[1:]):
        return Refused(Rule.HEAD_MALFORMED)
    return Allowed()


def _request(policy: Policy, facts: RequestFacts) -> Allowed | Refused:
    refused = (
        _destination(policy, facts)
        or _what(policy, facts)
        or _credential(facts)
        or _betas(policy, facts)
        or _framing(policy, facts)
        or _counts(policy, facts)
    )
    return Allowed() if refused is None else refused


def _destination(policy: Policy, facts: RequestFacts) -> Refused | None:
    if facts.tunnel_host is None:
        return Refused(Rule.PLAIN_HTTP)
    if facts.tunnel_host not in policy.hosts:
        return Refused(Rule.CONNECT_HOST)
    hosts = facts.values("host")
    if len(hosts) != 1 or hosts[0] not in (facts.tunnel_host, f"{facts.tunnel_host}:{policy.port}"):
        return Refused(Rule.HOST_HEADER)
    if facts.authority:
        return Refused(Rule.ABSOLUTE_TARGET)
    if facts.version != "HTTP/1.1":
        return Refused(Rule.VERSION)
    connection = ",".join(facts.values("connection")).lower()
    options = {option.strip() for option in connection.split(",")}
    if facts.values("upgrade") or facts.values("http2-settings") or "upgrade" in options:
        return Refused(Rule.UPGRADE)
    return None


def _what(policy: Policy, facts: RequestFacts) -> Refused | None:
    path, mark, query = facts.target.partition("?")
    there = [rule for rule in policy.requests if rule.path == path]
    if not there:
        return Refused(Rule.PATH)
    named = [rule for rule in there if rule.method == facts.method]
    if not named:
        return Refused(Rule.METHOD)
    if bool(mark) != bool(query) or not any(query in rule.queries for rule in named):
        return Refused(Rule.QUERY)
    return None


def _credential(facts: RequestFacts) -> Refused | None:
    keys = facts.values("x-api-key")
    bearers = facts.values("authorization")
    if not keys and not bearers:
        return Refused(Rule.CREDENTIAL_ABSENT) if facts.credential_needed else None
    own = not any(key != facts.placeholder for key in keys)
    own = own and not any(bearer != f"Bearer {facts.placeholder}" for bearer in bearers)
    if not own or len(keys) > 1 or len(bearers) > 1 or not facts.placeholder:
        return Refused(Rule.CREDENTIAL_FOREIGN)
    return None


def _betas(policy: Policy, facts: RequestFacts) -> Refused | None:
    for value in facts.values("anthropic-beta"):
        for beta in value.split(","):
            if beta.strip() and beta.strip() not in policy.betas:
                return Refused(Rule.BETA, beta.strip())
    return None


def _framing(policy: Policy, facts: RequestFacts) -> Refused | None:
    lengths = facts.values("content-length")
    if facts.values("transfer-encoding"):
        return Refused(Rule.LENGTH_CONFLICT if lengths else Rule.CHUNKED)
    if len(lengths) > 1 or not re.fullmatch(r"0|[1-9][0-9]{0,17}", "".join(lengths) or "x"):
        return Refused(Rule.LENGTH_CONFLICT)
    if any(value.strip().lower() != "identity" for value in facts.values("content-encoding")):
        return Refused(Rule.COMPRESSED)
    types = facts.values("content-type")
    if len(types) != 1 or types[0].partition(";")[0].strip().lower() != "application/json":
        return Refused(Rule.MEDIA_TYPE)
    if "charset" in types[0].lower() and "utf-8" not in types[0].lower():
        return Refused(Rule.MEDIA_TYPE)
    if int(lengths[0]) > policy.limits.body_bytes:
        return Refused(Rule.TOO_LONG)
    return None


def _counts(policy: Policy, facts: RequestFacts) -> Refused | None:
    used, bounds = facts.used, policy.bounds
    for rule, count, bound in (
        (Rule.BOUND_REQUESTS, used.requests, bounds.requests),
        (Rule.BOUND_BYTES, used.bytes, bounds.bytes),
        (Rule.BOUND_INPUT_TOKENS, used.input_tokens, bounds.input_tokens),
        (Rule.BOUND_OUTPUT_TOKENS, used.output_tokens, bounds.output_tokens),
        (Rule.BOUND_DOLLARS, used.dollars, bounds.dollars),
    ):
        if bound is not None and count >= bound:
            return Refused(rule, str(bound))
    if facts.underway >= policy.limits.concurrent_requests:
        return Refused(Rule.TOO_MANY_AT_ONCE)
    return None


class _UnreadableError(ValueError):
    """The body is JSON that two readers could take for two things."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.rule)
        self.refused = refused


# Keys that the rules below look for. A reader that folds case (Go's does), composes letters, ends
# a text at a null (C's do) or trims it would find them in another spelling, so another spelling is
# refused rather than looked through.
_WATCHED = frozenset(
    {"type", "source", "tools", "mcp_servers", "container", "url", "file_id", "input", "model"}
)
_PLAIN = re.compile(r"[a-z0-9_]*")


def _read_loosely(text: str) -> str:
    """What the loosest reader would take a text for."""
    if _PLAIN.fullmatch(text):
        return text
    text = unicodedata.normalize("NFKC", text.partition("\0")[0]).casefold()
    return "".join(letter for letter in text if letter.isprintable()).strip()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _UnreadableError(Refused(Rule.DUPLICATE_KEY, key))
            seen.add(key)
    return made


def _constant(name: str) -> Any:
    raise _UnreadableError(Refused(Rule.NOT_JSON, name))


def _number(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _UnreadableError(Refused(Rule.NOT_JSON, "Infinity"))
    return value


# Up to this size a body's text may be as wide in memory as its widest letter makes it.
_WIDE = 1 << 20
_PIECE = 1 << 20
# An escape that JSON does not have: a backslash of its own before a letter beyond ASCII.
_NO_ESCAPE = re.compile(rb"(?<!\\)(?:\\\\)*\\[\x80-\xff]")
_BELOW_4 = bytes(byte for byte in range(256) if byte < 0xF0)
_BELOW_2 = bytes(byte for byte in range(256) if byte < 0xC4)
_FOLLOWING = bytes(range(0x80, 0xC0))


def json_text(body: bytes) -> str:
    """The text of a JSON body, with letters beyond ASCII as escapes where that takes less memory.

    Python holds a text in as many bytes a letter as its widest one needs, so that one emoji makes
    134 MB of 33. Raises UnicodeDecodeError (a ValueError) for what is not UTF-8, and ValueError
    where the escapes would make JSON of what is none.
    """
    if len(body) <= _WIDE or body.isascii():
        return body.decode("utf-8")
    four = len(body.translate(None, _BELOW_4))
    letters = len(body.translate(None, _FOLLOWING))
    two = len(body.translate(None, _BELOW_2)) - four
    # Counts in bytes: as it is, and with escapes of 6 letters, 12 for those beyond 16 bits. Letters
    # of one byte beyond ASCII are counted among those of ASCII, which is near enough.
    wide = letters * (4 if four else 2 if two else 1)
    if letters - two - four + 6 * two + 12 * four >= wide:
        return body.decode("utf-8")
    if _NO_ESCAPE.search(body):
        raise ValueError("an escape that JSON does not have")
    decoder = codecs.getincrementaldecoder("utf-8")()
    pieces = [
        decoder.decode(body[at : at + _PIECE]).encode("ascii", _ESCAPE).decode("ascii")
        for at in range(0, len(body), _PIECE)
    ]
    decoder.decode(b"", final=True)
    return "".join(pieces)


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    return json.dumps(letters)[1:-1], error.end


_ESCAPE = "json-escape"
codecs.register_error(_ESCAPE, _escape)

_NODE = re.compile(rb'[\[{,]|"[^"]*"?')


def has_more_nodes(body: bytes, most: int) -> bool:
    """Does a JSON body have more texts (keys too), lists, objects and commas than this?

    Asked before it is parsed: a list of 56 bytes and more takes three in a body. What is no JSON
    is counted as if it were, so that it is never walked further than what is.
    """
    # Most bodies are told by this alone. A text has two quotes, of which escapes only add some.
    if body.count(b"[") + body.count(b"{") + body.count(b",") + body.count(b'"') // 2 < most:
        return False
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body
    found = itertools.islice(_NODE.finditer(plain), most, most + 1)
    return next(found, None) is not None


_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


def _body(policy: Policy, facts: BodyFacts) -> Allowed | Refused:
    # The very bytes that were read here leave. Writing them anew would leave no second reading
    # either, but would change what the harness said (1.0 and 1e0, escapes, the order of a cache's
    # prefix), so what two readers could read two ways is refused instead.
    if len(facts.body) > policy.limits.body_bytes:
        return Refused(Rule.TOO_LONG)
    if facts.log_bytes >= policy.limits.log_bytes:
        return Refused(Rule.LOG_FULL, str(policy.limits.log_bytes))
    if has_more_nodes(facts.body, policy.limits.nodes):
        return Refused(Rule.NODES, str(policy.limits.nodes))
    try:
        document = json.loads(
            json_text(facts.body),
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_float=_number,
        )
        if _HALF.search(facts.body):
            # Half of a surrogate pair is no character: one reader refuses it, another replaces it.
            json.dumps(document, ensure_ascii=False).encode("utf-8")
    except _UnreadableError as unreadable:
        return unreadable.refused
    except (ValueError, RecursionError):
        return Refused(Rule.NOT_JSON)
    if not isinstance(document, dict):
        return Refused(Rule.NOT_JSON)
    refused = _members(policy, document) or _told(policy, document) or _tools(policy, document)
    if refused is None and policy.bounds.dollars is not None:
        model = document["model"]
        refused = None if rates_of(facts.prices, model) else Refused(Rule.PRICE_UNKNOWN, model)
    if refused is None:
        refused = next(_reaching(document), None)
    return Allowed(document) if refused is None else refused


def _members(policy: Policy, document: Mapping[str, Any]) -> Refused | None:
    if "mcp_servers" in document:
        return Refused(Rule.MCP_SERVERS)
    if "container" in document:
        return Refused(Rule.CONTAINER)
    for key in document:
        if key not in policy.body_keys and key != "service_tier":
            return Refused(Rule.BODY_KEY, key)
    if "service_tier" in document and (
        not isinstance(document["service_tier"], str)
        or document["service_tier"] not in policy.service_tiers
    ):
        return Refused(Rule.SERVICE_TIER)
    model = document.get("model")
    for named in (model, *_fallback_models(document.get("fallbacks"))):
        if named not in policy.models:
            return Refused(Rule.MODEL, named if isinstance(named, str) else "")
    tokens = document.get("max_tokens", 0)
    if type(tokens) is not int or not 0 <= tokens <= policy.limits.output_tokens:
        return Refused(Rule.MAX_TOKENS)
    return None


def _told(policy: Policy, document: Mapping[str, Any]) -> Refused | None:
    """Each block of a message is a digest in the log, which a request may not blow up."""
    messages = document.get("messages")
    if not isinstance(messages, list):
        return None
    if len(messages) > policy.limits.messages:
        return Refused(Rule.MESSAGES, str(policy.limits.messages))
    if sum(map(_blocks, messages)) > policy.limits.blocks:
        return Refused(Rule.BLOCKS, str(policy.limits.blocks))
    return None


def _blocks(holder: Any) -> int:
    """The blocks in a message's content, and those in the results among them."""
    content = holder.get("content") if isinstance(holder, dict) else None
    if not isinstance(content, list):
        return 1
    return len(content) + sum(
        len(block["content"])
        for block in content
        if isinstance(block, dict) and isinstance(block.get("content"), list)
    )


def _fallback_models(fallbacks: Any) -> Iterator[Any]:
    """The models that the provider may answer with instead: bare names or objects with one."""
    for item in fallbacks if isinstance(fallbacks, list) else [] if fallbacks is None else [0]:
        yield item.get("model") if isinstance(item, dict) else item


def _tools(policy: Policy, document: Mapping[str, Any]) -> Refused | None:
    tools = document.get("tools", [])
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        return Refused(Rule.TOOLS)
    for tool in tools:
        kind = tool.get("type")
        if kind is None or kind == "custom":
            continue
        if not isinstance(kind, str) or kind not in policy.server_tools:
            return Refused(Rule.SERVER_TOOL, kind if isinstance(kind, str) else "")
    return None


def _reaching(document: Mapping[str, Any]) -> Iterator[Refused]:
    """Everything in the document that asks the provider to fetch: url and file sources, uploads.

    The `input` of a tool_use and the `input_schema` of a tool are data of the session's own and
    are not looked into.
    """
    pending: list[tuple[Any, bool]] = [(document, False)]
    while pending:
        value, is_tool = pending.pop()
        if isinstance(value, list):
            pending.extend((item, is_tool) for item in value)
            continue
        if not isinstance(value, dict):
            continue
        kind = value.get("type")
        if isinstance(kind, str) and _read_loosely(kind) == "container_upload":
            yield Refused(Rule.SOURCE, "container_upload")
        source = value.get("source")
        for each in source if isinstance(source, list) else [source]:
            if isinstance(each, dict) and _is_remote(each):
                yield Refused(Rule.SOURCE, str(each.get("type") or "url"))
        for key, item in value.items():
            loose = _read_loosely(key)
            if loose != key and loose in _WATCHED:
                yield Refused(Rule.AMBIGUOUS_KEY, key)
            if (kind == "tool_use" and key == "input") or (is_tool and key == "input_schema"):
                continue
            pending.append((item, value is document and key == "tools"))


def _is_remote(source: Mapping[str, Any]) -> bool:
    kind = source.get("type")
    if isinstance(kind, str) and _read_loosely(kind) in ("url", "file"):
        return True
    return "url" in source or "file_id" in source
