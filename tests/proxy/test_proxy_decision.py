"""Decisions alone, without mitmproxy: what passes, what is refused, and by which rule."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.bounds import Rates, Used
from proxy.decision import (
    WORDINGS,
    Allowed,
    BodyFacts,
    ConnectFacts,
    HeadFacts,
    HelloFacts,
    OpeningFacts,
    Refused,
    RequestFacts,
    Rule,
    decide,
    has_more_nodes,
    is_address,
)
from proxy.policy import Policy, load, shipped

HOST = "api.anthropic.com"
POLICY = load(shipped("anthropic"), "anthropic.yaml")
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
BODY: dict[str, Any] = {"model": "claude-opus-5", "max_tokens": 10, "messages": []}


def rule(facts: Any, policy: Policy = POLICY) -> Rule | None:
    decision = decide(policy, facts)
    return decision.rule if isinstance(decision, Refused) else None


def headers(*changes: tuple[str, str | None]) -> tuple[tuple[str, str], ...]:
    """The usual headers; a pair replaces the header of its name, None removes it."""
    names = {name for name, _ in changes}
    kept = [pair for pair in HEADERS if pair[0] not in names]
    return (*kept, *((name, value) for name, value in changes if value is not None))


def body(**members: Any) -> BodyFacts:
    return BodyFacts(json.dumps({**BODY, **members}).encode())


def test_every_rule_has_its_wording() -> None:
    """A refusal without words would be told as something else than it is."""
    plain = {Rule.CONNECT_HOST_HEADER}
    assert set(Rule) - set(WORDINGS) == plain
    assert all(wording.status == 0 or wording.text for wording in WORDINGS.values())


# CONNECT.


def test_the_host_of_the_policy_may_be_connected_to() -> None:
    assert rule(ConnectFacts(HOST, 443, (f"{HOST}:443",))) is None
    assert rule(ConnectFacts(HOST, 443, (HOST,))) is None
    assert rule(ConnectFacts(HOST, 443)) is None


@pytest.mark.parametrize(
    "host",
    [
        "github.com",
        "platform.claude.com",
        "api.anthropic.com.example.test",
        "api.anthropic.com.",
        "API.anthropic.com",
        "api.anthropic.com\x00.evil.test",
        "evil.test\x00.api.anthropic.com",
        "user@api.anthropic.com",
        "api.anthropic.com:443",
        "xapi.anthropic.com",
        "anthropic.com",
        "\u0430pi.anthropic.com",
        "xn--pi-7ka.anthropic.com",
        "",
        " api.anthropic.com",
        "api.anthropic.com\t",
        "api。anthropic。com",
    ],
)
def test_another_host_is_refused_in_any_spelling(host: str) -> None:
    assert rule(ConnectFacts(host, 443)) is Rule.CONNECT_HOST


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "2130706433",
        "017700000001",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "127.1",
        "0",
        "::1",
        "[::1]",
        "::ffff:127.0.0.1",
        "[::ffff:7f00:1]",
        "2002:7f00:1::",
        "64:ff9b::a9fe:a9fe",
        "fe80::1%eth0",
        "169.254.169.254",
        "169.254.169.254.",
    ],
)
def test_an_address_is_refused_in_every_spelling(host: str) -> None:
    assert is_address(host)
    assert rule(ConnectFacts(host, 443)) is Rule.CONNECT_ADDRESS


@pytest.mark.parametrize("port", [0, 22, 53, 80, 8443, 444, 65535])
def test_another_port_is_refused(port: int) -> None:
    assert rule(ConnectFacts(HOST, port)) is Rule.CONNECT_PORT


@pytest.mark.parametrize("named", [("evil.test",), (HOST, HOST), (f"{HOST}:80",), ("",)])
def test_a_host_header_beside_connect_names_the_same_host_once(named: tuple[str, ...]) -> None:
    assert rule(ConnectFacts(HOST, 443, named)) is Rule.CONNECT_HOST_HEADER


@given(st.text() | st.from_regex(r"[aApP.iI\x00-]*api\.anthropic\.com[\x00./@:a-z]*"))
@example(HOST + ".")
def test_no_spelling_but_the_policys_own_is_ever_connected_to(host: str) -> None:
    assert (rule(ConnectFacts(host, 443)) is None) == (host == HOST)


# The tunnel's first bytes, and TLS.


@pytest.mark.parametrize("first", [b"", b"\x16", b"\x16\x03", b"\x16\x03\x01", b"\x16\x03\x03\x01"])
def test_a_tunnel_opens_with_tls(first: bytes) -> None:
    assert rule(OpeningFacts(first)) is None


@pytest.mark.parametrize(
    "first", [b"S", b"SSH-2.0", b"GET / HTTP/1.1", b"\x16\x02", b"\x17\x03\x03"]
)
def test_anything_but_tls_in_a_tunnel_is_refused(first: bytes) -> None:
    assert rule(OpeningFacts(first)) is Rule.NOT_TLS


def test_a_hello_names_the_tunnels_host() -> None:
    assert rule(HelloFacts(HOST, HOST, (0, 10, 16))) is None
    assert rule(HelloFacts(HOST, None, (10,))) is Rule.HELLO_NAME_ABSENT
    assert rule(HelloFacts(HOST, "evil.test", (0,))) is Rule.HELLO_NAME
    assert rule(HelloFacts(HOST, HOST, (0, 0))) is Rule.HELLO_NAME
    assert rule(HelloFacts(HOST, HOST, (0, 0xFE0D))) is Rule.HELLO_ENCRYPTED


# Raw heads.

HEAD = b"POST /v1/messages HTTP/1.1\r\nHost: api.anthropic.com\r\nAccept: */*"


def test_a_plain_head_passes_whole_or_in_any_part() -> None:
    assert rule(HeadFacts(HEAD, True)) is None
    for length in range(len(HEAD)):
        assert rule(HeadFacts(HEAD[:length], False)) is None


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (HEAD.replace(b"v1/", b"v1\n/"), Rule.HEAD_CONTROL),
        (HEAD.replace(b"api.", b"api\n."), Rule.HEAD_CONTROL),
        (HEAD.replace(b"api.", b"api\r."), Rule.HEAD_CONTROL),
        (HEAD.replace(b"\r\n", b"\n"), Rule.HEAD_CONTROL),
        (HEAD.replace(b"api.", b"api\x00."), Rule.HEAD_CONTROL),
        (HEAD.replace(b"api.", b"api\x7f."), Rule.HEAD_CONTROL),
        (HEAD.replace(b"api.", b"\xc3\xa4pi."), Rule.HEAD_CONTROL),
        (HEAD + b"\r\n folded", Rule.HEAD_FOLDED),
        (HEAD + b"\r\n\tfolded", Rule.HEAD_FOLDED),
        (HEAD + b"\r\nno colon", Rule.HEAD_MALFORMED),
        (HEAD + b"\r\nname : value", Rule.HEAD_MALFORMED),
        (HEAD + b"\r\n: value", Rule.HEAD_MALFORMED),
        (HEAD.replace(b" HTTP/1.1", b""), Rule.HEAD_MALFORMED),
        (HEAD.replace(b"POST ", b"POST  "), Rule.HEAD_MALFORMED),
        (HEAD.replace(b" HTTP", b" x HTTP"), Rule.HEAD_MALFORMED),
        (b"\r\n" + HEAD, Rule.HEAD_MALFORMED),
        (HEAD + b"\r\nX: " + b"a" * 70000, Rule.HEAD_TOO_LONG),
        (HEAD + b"\r\nX: y" * 101, Rule.HEAD_TOO_MANY),
        (b"\x16\x03\x01\x02\x00\x01\x00", Rule.HEAD_CONTROL),
    ],
)
def test_a_head_that_two_readers_could_read_two_ways_is_refused(
    head: bytes, expected: Rule
) -> None:
    assert rule(HeadFacts(head, True)) is expected


def test_an_endless_head_is_refused_before_its_end() -> None:
    assert rule(HeadFacts(b"GET /" + b"a" * 70000, False)) is Rule.HEAD_TOO_LONG
    assert rule(HeadFacts(HEAD + b"\r\nX: y" * 101, False)) is Rule.HEAD_TOO_MANY


@given(st.binary(max_size=300), st.booleans())
def test_no_bytes_of_a_head_raise(head: bytes, whole: bool) -> None:
    decide(POLICY, HeadFacts(head, whole))


# Requests.


def test_the_harness_own_requests_pass() -> None:
    assert rule(REQUEST) is None
    assert rule(replace(REQUEST, target="/v1/messages")) is None
    assert rule(replace(REQUEST, target="/v1/messages/count_tokens?beta=true")) is None
    bearer = headers(("x-api-key", None), ("authorization", "Bearer placeholder"))
    assert rule(replace(REQUEST, headers=bearer)) is None
    both = headers(("authorization", "Bearer placeholder"))
    assert rule(replace(REQUEST, headers=both)) is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"tunnel_host": None}, Rule.PLAIN_HTTP),
        ({"headers": headers(("host", "evil.test"))}, Rule.HOST_HEADER),
        ({"headers": headers(("host", None))}, Rule.HOST_HEADER),
        ({"headers": (("host", HOST), *HEADERS)}, Rule.HOST_HEADER),
        ({"headers": headers(("host", HOST + "."))}, Rule.HOST_HEADER),
        ({"headers": headers(("host", HOST + ":80"))}, Rule.HOST_HEADER),
        ({"authority": "evil.test"}, Rule.ABSOLUTE_TARGET),
        ({"authority": HOST}, Rule.ABSOLUTE_TARGET),
        ({"version": "HTTP/1.0"}, Rule.VERSION),
        ({"version": "HTTP/2.0"}, Rule.VERSION),
        ({"headers": headers(("upgrade", "websocket"))}, Rule.UPGRADE),
        ({"headers": headers(("connection", "keep-alive, Upgrade"))}, Rule.UPGRADE),
        ({"headers": headers(("http2-settings", "AAMAAABk"))}, Rule.UPGRADE),
        ({"target": "/v1/files"}, Rule.PATH),
        ({"target": "/v1/messages/batches"}, Rule.PATH),
        ({"target": "/v1/messages/"}, Rule.PATH),
        ({"target": "//v1/messages"}, Rule.PATH),
        ({"target": "/v1/./messages"}, Rule.PATH),
        ({"target": "/v1/messages%2fbatches"}, Rule.PATH),
        ({"target": "/v1/messages#x"}, Rule.PATH),
        ({"target": "/v1/messages;x=y"}, Rule.PATH),
        ({"target": "*"}, Rule.PATH),
        ({"target": "/api/oauth/profile", "method": "GET"}, Rule.PATH),
        ({"method": "GET"}, Rule.METHOD),
        ({"method": "post"}, Rule.METHOD),
        ({"target": "/v1/messages?"}, Rule.QUERY),
        ({"target": "/v1/messages?beta=true&x=1"}, Rule.QUERY),
        ({"target": "/v1/messages?beta=false"}, Rule.QUERY),
        ({"headers": headers(("x-api-key", None))}, Rule.CREDENTIAL_ABSENT),
        ({"headers": headers(("x-api-key", "sk-foreign"))}, Rule.CREDENTIAL_FOREIGN),
        ({"headers": headers(("x-api-key", ""))}, Rule.CREDENTIAL_FOREIGN),
        ({"headers": headers(("authorization", "Bearer foreign"))}, Rule.CREDENTIAL_FOREIGN),
        ({"headers": headers(("authorization", "placeholder"))}, Rule.CREDENTIAL_FOREIGN),
        ({"headers": headers(("authorization", "Basic placeholder"))}, Rule.CREDENTIAL_FOREIGN),
        ({"headers": (("x-api-key", "placeholder"), *HEADERS)}, Rule.CREDENTIAL_FOREIGN),
        ({"headers": (("x-api-key", "foreign"), *HEADERS)}, Rule.CREDENTIAL_FOREIGN),
        ({"headers": headers(("anthropic-beta", "files-api-2025-04-14"))}, Rule.BETA),
        ({"headers": headers(("anthropic-beta", "effort-1, mcp-client-1"))}, Rule.BETA),
        ({"headers": headers(("transfer-encoding", "chunked"))}, Rule.LENGTH_CONFLICT),
        (
            {"headers": headers(("transfer-encoding", "chunked"), ("content-length", None))},
            Rule.CHUNKED,
        ),
        ({"headers": (("content-length", "2"), *HEADERS)}, Rule.LENGTH_CONFLICT),
        ({"headers": headers(("content-length", "2, 2"))}, Rule.LENGTH_CONFLICT),
        ({"headers": headers(("content-length", "+2"))}, Rule.LENGTH_CONFLICT),
        ({"headers": headers(("content-length", "02"))}, Rule.LENGTH_CONFLICT),
        ({"headers": headers(("content-length", "٢"))}, Rule.LENGTH_CONFLICT),
        ({"headers": headers(("content-length", None))}, Rule.LENGTH_CONFLICT),
        ({"headers": headers(("content-encoding", "gzip"))}, Rule.COMPRESSED),
        ({"headers": headers(("content-type", "text/plain"))}, Rule.MEDIA_TYPE),
        (
            {"headers": headers(("content-type", "application/json; charset=utf-7"))},
            Rule.MEDIA_TYPE,
        ),
        ({"headers": headers(("content-length", "999999999999"))}, Rule.TOO_LONG),
        ({"headers": headers(("content-length", str(32 * 1024 * 1024 + 1)))}, Rule.TOO_LONG),
        ({"used": Used(requests=10000)}, Rule.BOUND_REQUESTS),
        ({"underway": 32}, Rule.TOO_MANY_AT_ONCE),
    ],
)
def test_a_request_outside_the_policy_is_refused(changes: dict[str, Any], expected: Rule) -> None:
    assert rule(replace(REQUEST, **changes)) is expected


def test_the_destination_is_decided_before_the_path_and_the_path_before_the_credential() -> None:
    everything = replace(
        REQUEST,
        headers=(("host", "evil.test"), ("x-api-key", "foreign")),
        target="/v1/files",
        version="HTTP/1.0",
    )
    assert rule(everything) is Rule.HOST_HEADER
    there = replace(everything, headers=(("host", HOST), ("x-api-key", "foreign")))
    assert rule(there) is Rule.VERSION
    assert rule(replace(there, version="HTTP/1.1")) is Rule.PATH
    assert (
        rule(replace(there, version="HTTP/1.1", target="/v1/messages")) is Rule.CREDENTIAL_FOREIGN
    )


def test_other_paths_of_the_host_are_answered_404() -> None:
    decision = decide(POLICY, replace(REQUEST, target="/api/claude_code/settings", method="GET"))
    assert isinstance(decision, Refused)
    assert decision.status == 404


def test_without_a_credential_to_set_none_is_needed_and_a_foreign_one_still_refused() -> None:
    none = replace(REQUEST, credential_needed=False, placeholder="")
    assert rule(replace(none, headers=headers(("x-api-key", None)))) is None
    assert rule(none) is Rule.CREDENTIAL_FOREIGN
    assert rule(replace(none, headers=headers(("x-api-key", "")))) is Rule.CREDENTIAL_FOREIGN


def test_the_placeholder_is_in_no_representation_of_the_facts() -> None:
    assert "secret-placeholder" not in repr(replace(REQUEST, placeholder="secret-placeholder"))


@given(st.lists(st.tuples(st.sampled_from(["x-api-key", "authorization"]), st.text())))
def test_no_set_of_credentials_passes_that_holds_another_than_the_placeholder(
    credentials: list[tuple[str, str]],
) -> None:
    facts = replace(REQUEST, headers=(*headers(("x-api-key", None)), *credentials))
    own = {("x-api-key", "placeholder"), ("authorization", "Bearer placeholder")}
    if rule(facts) is None:
        assert credentials
        assert set(credentials) <= own


@given(st.text(max_size=60))
@example("/v1/messages?beta=true")
def test_no_target_but_the_named_ones_passes(target: str) -> None:
    named = {
        path + query
        for path in ("/v1/messages", "/v1/messages/count_tokens")
        for query in ("", "?beta=true")
    }
    assert (rule(replace(REQUEST, target=target)) is None) == (target in named)


# Bodies.


def test_a_body_with_the_callers_own_tools_passes_and_is_handed_on() -> None:
    decision = decide(
        POLICY,
        body(
            tools=[
                {"name": "Bash", "input_schema": {"type": "object"}},
                {"name": "Read", "type": "custom", "defer_loading": True},
            ],
            stream=True,
        ),
    )
    assert isinstance(decision, Allowed)
    assert decision.document["stream"] is True


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (BodyFacts(b""), Rule.NOT_JSON),
        (BodyFacts(b"tools: web_search_20250305"), Rule.NOT_JSON),
        (BodyFacts(b"[]"), Rule.NOT_JSON),
        (BodyFacts(b"{} {}"), Rule.NOT_JSON),
        (BodyFacts(b'{"model": NaN}'), Rule.NOT_JSON),
        (BodyFacts(b'\xef\xbb\xbf{"model": "claude-opus-5"}'), Rule.NOT_JSON),
        (BodyFacts(b'{"model": "\xff"}'), Rule.NOT_JSON),
        (BodyFacts('{"model": "claude-opus-5"}'.encode("utf-16")), Rule.NOT_JSON),
        (BodyFacts(b'{"messages": ' + b"[" * 100000 + b"]" * 100000 + b"}"), Rule.NOT_JSON),
        (BodyFacts(b'{"model": "claude-1", "model": "claude-1"}'), Rule.DUPLICATE_KEY),
        (BodyFacts(b'{"model": "claude-1", "mod\\u0065l": "x"}'), Rule.DUPLICATE_KEY),
        (
            BodyFacts(b'{"model": "claude-1", "messages": [{"a": {"b": 1, "b": 1}}]}'),
            Rule.DUPLICATE_KEY,
        ),
        (body(mcp_servers=[]), Rule.MCP_SERVERS),
        (body(mcp_servers=None), Rule.MCP_SERVERS),
        (body(container="x"), Rule.CONTAINER),
        (body(Mcp_Servers=[]), Rule.BODY_KEY),
        (body(unheard_of=1), Rule.BODY_KEY),
        (body(service_tier="priority"), Rule.SERVICE_TIER),
        (body(service_tier=["x"]), Rule.SERVICE_TIER),
        (body(model="gpt-5"), Rule.MODEL),
        (body(model=None), Rule.MODEL),
        (body(model=["claude-opus-5"]), Rule.MODEL),
        (body(max_tokens=128001), Rule.MAX_TOKENS),
        (body(max_tokens=True), Rule.MAX_TOKENS),
        (body(max_tokens=-1), Rule.MAX_TOKENS),
        (body(tools={}), Rule.TOOLS),
        (body(tools=["web_search"]), Rule.TOOLS),
        (body(tools=[{"type": "web_search_20250305"}]), Rule.SERVER_TOOL),
        (body(tools=[{"type": "web_search_20260209"}]), Rule.SERVER_TOOL),
        (body(tools=[{"type": "web_fetch_20250910"}]), Rule.SERVER_TOOL),
        (body(tools=[{"type": "mcp_toolset"}]), Rule.SERVER_TOOL),
        (body(tools=[{"type": "code_execution_20250825"}]), Rule.SERVER_TOOL),
        (body(tools=[{"type": ["custom"]}]), Rule.SERVER_TOOL),
        (body(tools=[{"name": "a", "Type": "web_search_20250305"}]), Rule.AMBIGUOUS_KEY),
        (body(system=[{"type": "container_upload", "file_id": "f"}]), Rule.SOURCE),
    ],
)
def test_a_body_outside_the_policy_is_refused(facts: BodyFacts, expected: Rule) -> None:
    assert rule(facts) is expected


@pytest.mark.parametrize("kind", ["url", "file"])
def test_a_source_that_the_provider_would_fetch_is_refused_at_any_depth(kind: str) -> None:
    image = {"type": "image", "source": {"type": kind, kind: "https://evil.test/x"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [image]}
    for content in ([image], [result], [{"type": "document", "source": {"content": [image]}}]):
        assert rule(body(messages=[{"role": "user", "content": content}])) is Rule.SOURCE
    assert rule(body(system=[image])) is Rule.SOURCE


def test_inputs_and_schemas_of_tools_are_data_and_not_looked_into() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://evil.test/x"}}
    use = {"type": "tool_use", "id": "t", "name": "x", "input": image}
    assert rule(body(messages=[{"role": "assistant", "content": [use]}])) is None
    schema = {"name": "x", "input_schema": {"properties": image}}
    assert rule(body(tools=[schema])) is None
    # Only in those places: the same words elsewhere are not a way around.
    assert rule(body(messages=[{"role": "user", "input_schema": image, "content": "x"}]))
    assert rule(body(messages=[{"type": "x", "input": image}]))


def test_a_source_with_its_bytes_in_it_passes() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    assert rule(body(messages=[{"role": "user", "content": [image]}])) is None


def test_a_body_over_the_limit_is_refused_unread() -> None:
    small = replace(POLICY, limits=replace(POLICY.limits, body_bytes=10))
    assert rule(BodyFacts(b"x" * 11), small) is Rule.TOO_LONG


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "source", "url", "tools", "input", "content", "messages"])
            | st.text(max_size=5),
            inner | st.sampled_from(["url", "file", "tool_use", "web_search_20250305"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values | st.dictionaries(st.sampled_from(list(POLICY.body_keys)), json_values))
def test_no_body_raises(value: Any) -> None:
    decide(POLICY, BodyFacts(json.dumps(value).encode("utf-8", "surrogatepass")))


@given(st.binary(max_size=100))
def test_no_bytes_of_a_body_raise(data: bytes) -> None:
    assert isinstance(decide(POLICY, BodyFacts(data)), Refused)


# A second provider's policy, to show that the first is data.

OPENAI = """
schema: recorder-policy/1
name: openai
hosts: [api.openai.com]
port: 443
requests:
  - {method: POST, path: /v1/responses, queries: [""], spends: true}
headers: [host, content-type, content-length, accept]
models: ["gpt-5*"]
betas: []
body_keys: [model, input, stream, tools, instructions]
service_tiers: []
server_tools: [function]
limits: {head_bytes: 8192, headers: 50, body_bytes: 1000, messages: 10, blocks: 20,
         nodes: 100, log_bytes: 10000, output_tokens: 10,
         concurrent_requests: 2}
bounds: {requests: 5, bytes: 10, input_tokens: 20, output_tokens: 30, dollars: 0.5}
"""


def test_another_providers_policy_decides_by_its_own_data() -> None:
    policy = load(OPENAI, "openai.yaml")
    assert rule(ConnectFacts("api.openai.com", 443), policy) is None
    assert rule(ConnectFacts(HOST, 443), policy) is Rule.CONNECT_HOST
    request = replace(
        REQUEST,
        tunnel_host="api.openai.com",
        target="/v1/responses",
        headers=headers(
            ("host", "api.openai.com"),
            ("x-api-key", None),
            ("authorization", "Bearer placeholder"),
        ),
    )
    assert rule(request, policy) is None
    assert rule(replace(request, target="/v1/messages"), policy) is Rule.PATH
    function = {"model": "gpt-5-mini", "input": "x", "tools": [{"type": "function"}]}
    prices = {"gpt-5-mini": Rates(Decimal(1), Decimal(2))}
    assert rule(BodyFacts(json.dumps(function).encode(), prices), policy) is None
    assert rule(BodyFacts(json.dumps(function).encode()), policy) is Rule.PRICE_UNKNOWN
    search = {**function, "tools": [{"type": "web_search"}]}
    assert rule(BodyFacts(json.dumps(search).encode(), prices), policy) is Rule.SERVER_TOOL


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        (Used(4, 9, 19, 29, Decimal("0.499999")), None),
        (Used(requests=5), Rule.BOUND_REQUESTS),
        (Used(bytes=10), Rule.BOUND_BYTES),
        (Used(input_tokens=20), Rule.BOUND_INPUT_TOKENS),
        (Used(output_tokens=31), Rule.BOUND_OUTPUT_TOKENS),
        (Used(dollars=Decimal("0.5")), Rule.BOUND_DOLLARS),
    ],
)
def test_once_a_bound_is_met_no_further_request_leaves(used: Used, expected: Rule | None) -> None:
    bounds = load(OPENAI, "openai.yaml").bounds
    assert rule(replace(REQUEST, used=used), replace(POLICY, bounds=bounds)) is expected
    decision = decide(replace(POLICY, bounds=bounds), replace(REQUEST, used=used))
    if isinstance(decision, Refused):
        assert decision.status == 403
        assert decision.detail in ("5", "10", "20", "30", "0.5")


def test_without_a_bound_any_amount_may_have_been_used() -> None:
    huge = Used(9999, 1 << 60, 1 << 60, 1 << 60, Decimal(10**9))
    assert rule(replace(REQUEST, used=huge)) is None


@pytest.mark.parametrize("fallbacks", [["other"], [{"model": "other"}], [{}], [7], "other", {}])
def test_a_model_that_the_provider_may_fall_back_to_is_one_of_the_policys(fallbacks: Any) -> None:
    assert rule(body(fallbacks=[{"model": "claude-opus-5"}, "claude-sonnet-5"])) is None
    assert rule(body(fallbacks=fallbacks)) is Rule.MODEL


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ({}, 1),
        ([1, 2, 3], 3),
        ({"a": "b"}, 3),
        ({"a": 'quote " [,{ and \\'}, 3),
        (["\\", '\\"', '","'], 6),
        ([{"type": "text", "text": ""}] * 2, 14),
    ],
)
def test_nodes_are_counted_outside_texts(value: object, count: int) -> None:
    body = json.dumps(value).encode()
    assert has_more_nodes(body, count - 1)
    assert not has_more_nodes(body, count)


def test_a_request_of_a_million_blocks_is_refused_before_it_is_parsed() -> None:
    blocks = b",".join([b'{"type":"text","text":""}'] * 1_000_000)
    body = b'{"model":"claude-opus-5","messages":[{"role":"user","content":[' + blocks + b"]}]}"
    tracemalloc.start()
    try:
        assert rule(BodyFacts(body)) is Rule.NODES
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
