"""A policy is read strictly: every mistake is refused with its place."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from proxy.decision import Allowed, ConnectFacts, RequestFacts, decide
from proxy.policy import PolicyError, load, shipped

SHIPPED = shipped("anthropic")


def edited(old: str, new: str) -> str:
    assert SHIPPED.count(old) == 1
    return SHIPPED.replace(old, new)


def test_the_shipped_policy_names_one_host_and_two_requests() -> None:
    policy = load(SHIPPED, "anthropic.yaml")
    assert policy.hosts == {"api.anthropic.com"}
    assert {(rule.method, rule.path) for rule in policy.requests} == {
        ("POST", "/v1/messages"),
        ("POST", "/v1/messages/count_tokens"),
    }
    assert all(rule.queries == {"", "beta=true"} for rule in policy.requests)
    assert policy.server_tools == frozenset()
    assert policy.limits.body_bytes == 32 * 1024 * 1024


def test_bounds_are_numbers_or_none() -> None:
    bounds = load(edited("  dollars: null", "  dollars: 2.50"), "p").bounds
    assert bounds.dollars == Decimal("2.5")
    assert (bounds.requests, bounds.bytes) == (10000, None)
    assert load(SHIPPED, "p").bounds.dollars is None


def test_a_request_says_whether_it_costs_money() -> None:
    policy = load(SHIPPED, "p")
    assert policy.spends("/v1/messages")
    assert not policy.spends("/v1/messages/count_tokens")


def test_the_digest_is_of_the_text_and_changes_with_any_of_it() -> None:
    assert load(SHIPPED, "p").digest != load(SHIPPED + "# more\n", "p").digest


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        (SHIPPED + "hostz: []\n", r"line \d+, column 1", "unknown key 'hostz'"),
        (edited("port: 443", "port: 443\nport: 444"), r"line \d+, column 1", "stands twice"),
        (edited("port: 443", "port: '443'"), "column 7", "whole number"),
        (edited("port: 443", "port: 0443"), "column 7", "whole number"),
        (edited("port: 443", "port: 70000"), "column 7", "between 1 and 65535"),
        (edited("port: 443\n", ""), r"line \d+, column 1", "'port' is missing"),
        (edited("hosts: [api.anthropic.com]", "hosts: api.anthropic.com"), "column 8", "a list"),
        (edited("[api.anthropic.com]", "[Api.anthropic.com]"), "column 9", "lower case"),
        (edited("[api.anthropic.com]", "[127.0.0.1]"), "column 9", "an address"),
        (edited("[api.anthropic.com]", "[localhost]"), "column 9", "not a host name"),
        (edited("[api.anthropic.com]", "['*.anthropic.com']"), "column 9", "not a host name"),
        (edited("  - accept\n", "  - x-api-key\n"), "column 5", "credential"),
        (edited("  - accept\n", "  - x-*\n"), "column 5", "credential"),
        (edited("  - accept\n", "  - Accept\n"), "column 5", "lower case"),
        (edited('["claude-*"]', '["cl*de"]'), "column 10", "at the end"),
        (edited('["claude-*"]', "[7]"), "column 10", "a text"),
        (edited("path: /v1/messages,", "path: '/v1/messages?x',"), "column 26", "not a path"),
        (edited("  headers: 100", "  heads: 100"), "column 3", "unknown key 'heads'"),
        (edited("recorder-policy/1", "recorder-policy/2"), "column 9", "reads"),
        (edited("spends: true", "spends: yes"), r"line \d+, column \d+", "true or false"),
        (edited("  dollars: null", "  dollars: .5"), "column 12", "dollars in plain"),
        (edited("  dollars: null", "  dollars: [1]"), "column 12", "dollars in plain"),
        (edited("  bytes: null", "  bytes: none"), "column 10", "whole number"),
        (edited("  bytes: null\n", ""), r"line \d+, column 3", "'bytes' is missing"),
        ("hosts: [", r"line 1, column \d+", ""),
        ("- a\n", "line 1, column 1", "expected the keys"),
        ("", "p", "empty"),
        ("a: \x00", "p", "not YAML"),
    ],
)
def test_a_mistake_is_refused_with_its_line_and_column(text: str, place: str, why: str) -> None:
    with pytest.raises(PolicyError, match=place) as refusal:
        load(text, "p")
    assert why in str(refusal.value)


def test_empty_lists_allow_nothing() -> None:
    policy = load(edited("hosts: [api.anthropic.com]", "hosts: []"), "p")
    assert not isinstance(decide(policy, ConnectFacts("api.anthropic.com", 443)), Allowed)
    request = RequestFacts(
        tunnel_host="api.anthropic.com",
        authority="",
        version="HTTP/1.1",
        method="POST",
        target="/v1/messages",
        headers=(("host", "api.anthropic.com"), ("x-api-key", "placeholder")),
        placeholder="placeholder",
    )
    none = replace(load(SHIPPED, "p"), requests=())
    assert not isinstance(decide(none, request), Allowed)
    named = load(edited('models: ["claude-*"]', "models: []"), "p")
    assert "claude-opus-5" not in named.models
    assert "" not in named.models
