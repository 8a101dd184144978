"""A policy is data: what a session may ask, read strictly from YAML, and its digest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import NoReturn, TypeVar

import yaml

from proxy.bounds import Bounds

SCHEMA = "recorder-policy/1"
CREDENTIAL_HEADERS = frozenset({"x-api-key", "authorization", "proxy-authorization", "cookie"})

_T = TypeVar("_T")


class PolicyError(ValueError):
    """The text is not a policy. The message names the place: `name, line L, column C: why`."""


@dataclass(frozen=True)
class RequestRule:
    """One request that may be made. `queries` holds raw query strings; "" is no query at all.

    `spends`: whether the provider takes money for its answer.
    """

    method: str
    path: str
    queries: frozenset[str]
    spends: bool


@dataclass(frozen=True)
class Limits:
    """Of one request. Bytes, counts and tokens; each is the largest that still passes.

    `messages` are those of a request, `blocks` all that stand in them and in their results,
    `nodes` the texts (keys too), lists, objects and commas of its JSON. `log_bytes` is of the
    egress log: one that has reached it lets no request leave. `concurrent_requests` is how many
    may be underway at once.
    """

    head_bytes: int
    headers: int
    body_bytes: int
    messages: int
    blocks: int
    nodes: int
    log_bytes: int
    output_tokens: int
    concurrent_requests: int


@dataclass(frozen=True)
class Names:
    """A closed list of names, some of which stand for every name that begins so."""

    exact: frozenset[str]
    prefixes: tuple[str, ...]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self.exact or name.startswith(self.prefixes))


@dataclass(frozen=True)
class Policy:
    """What may pass. `digest` is over the text it was read from, so comments count too."""

    name: str
    digest: str
    hosts: frozenset[str]
    port: int
    requests: tuple[RequestRule, ...]
    headers: Names
    models: Names
    betas: Names
    body_keys: frozenset[str]
    service_tiers: frozenset[str]
    server_tools: frozenset[str]
    limits: Limits
    bounds: Bounds

    def spends(self, path: str) -> bool:
        """Does a request to this path cost money? `path` has no query."""
        return any(rule.spends for rule in self.requests if rule.path == path)


def shipped(name: str) -> str:
    """The text of a policy that comes with the project."""
    return (Path(__file__).parent / "policies" / f"{name}.yaml").read_text(encoding="utf-8")


def load(text: str, name: str) -> Policy:
    """Read a policy. `name` is what errors call the text (a file name).

    Raises:
        PolicyError: not YAML, a key too many or too few, a value of another kind, a key twice.
    """
    digest = "sha256:" + hashlib.sha256(text.encode("utf-8")).hexdigest()
    try:
        document = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise PolicyError(f"{name}{place}: {error.problem or 'not YAML'}") from error
    except yaml.YAMLError as error:
        raise PolicyError(f"{name}: not YAML: {error}") from error
    if document is None:
        raise PolicyError(f"{name}: a policy is empty")
    return _Reader(name).policy(document, digest)


class _Reader:
    """Turns YAML nodes into a policy. Every refusal knows the node's place."""

    def __init__(self, name: str) -> None:
        self.name = name

    def refuse(self, node: yaml.Node, why: str) -> NoReturn:
        mark = node.start_mark
        raise PolicyError(f"{self.name}, line {mark.line + 1}, column {mark.column + 1}: {why}")

    def policy(self, node: yaml.Node, digest: str) -> Policy:
        keys = (
            "schema",
            "name",
            "hosts",
            "port",
            "requests",
            "headers",
            "models",
            "betas",
            "body_keys",
            "service_tiers",
            "server_tools",
            "limits",
            "bounds",
        )
        found = self.members(node, keys)
        schema = self.text(found["schema"])
        if schema != SCHEMA:
            self.refuse(found["schema"], f"schema is {schema!r}, this recorder reads {SCHEMA!r}")
        port = self.count(found["port"])
        if not 1 <= port <= 65535:
            self.refuse(found["port"], "port is not between 1 and 65535")
        return Policy(
            name=self.text(found["name"]),
            digest=digest,
            hosts=frozenset(self.each(found["hosts"], self.host)),
            port=port,
            requests=tuple(self.each(found["requests"], self.request)),
            headers=self.names(found["headers"], self.header),
            models=self.names(found["models"], self.text),
            betas=self.names(found["betas"], self.text),
            body_keys=frozenset(self.each(found["body_keys"], self.text)),
            service_tiers=frozenset(self.each(found["service_tiers"], self.text)),
            server_tools=frozenset(self.each(found["server_tools"], self.text)),
            limits=self.limits(found["limits"]),
            bounds=self.bounds(found["bounds"]),
        )

    def members(self, node: yaml.Node, keys: tuple[str, ...]) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            self.refuse(node, f"expected the keys {', '.join(keys)}")
        found: dict[str, yaml.Node] = {}
        for key_node, value_node in node.value:
            key = self.text(key_node)
            if key not in keys:
                self.refuse(key_node, f"unknown key {key!r} (known: {', '.join(keys)})")
            if key in found:
                self.refuse(key_node, f"key {key!r} stands twice")
            found[key] = value_node
        missing = [key for key in keys if key not in found]
        if missing:
            self.refuse(node, f"key {missing[0]!r} is missing")
        return found

    def each(self, node: yaml.Node, read: Callable[[yaml.Node], _T]) -> Iterator[_T]:
        if not isinstance(node, yaml.SequenceNode):
            self.refuse(node, "expected a list (an empty one, [], allows nothing)")
        for item in node.value:
            yield read(item)

    def names(self, node: yaml.Node, read: Callable[[yaml.Node], str]) -> Names:
        exact: set[str] = set()
        prefixes: list[str] = []
        for item in self.each(node, lambda item: item):
            name = read(item)
            stem = name.removesuffix("*")
            if "*" in stem:
                self.refuse(item, f"{name!r}: * may only stand at the end")
            if stem == name:
                exact.add(name)
            else:
                prefixes.append(stem)
        return Names(frozenset(exact), tuple(prefixes))

    def text(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag != "tag:yaml.org,2002:str":
            self.refuse(node, "expected a text")
        return str(node.value)

    def count(self, node: yaml.Node) -> int:
        if not isinstance(node, yaml.ScalarNode) or node.tag != "tag:yaml.org,2002:int":
            self.refuse(node, "expected a whole number")
        digits = str(node.value)
        if not (digits.isascii() and digits.isdigit()) or (digits[0] == "0" and digits != "0"):
            self.refuse(node, "expected a whole number in plain decimal digits")
        return int(digits)

    def host(self, node: yaml.Node) -> str:
        host = self.text(node)
        labels = host.split(".")
        plain = "abcdefghijklmnopqrstuvwxyz0123456789-"
        if len(labels) < 2 or not all(label and set(label) <= set(plain) for label in labels):
            self.refuse(node, f"{host!r} is not a host name in lower case")
        if labels[-1].isdigit():
            self.refuse(node, f"{host!r} is an address: a policy names hosts")
        return host

    def header(self, node: yaml.Node) -> str:
        header = self.text(node)
        if header != header.lower():
            self.refuse(node, f"{header!r} is not in lower case")
        stem = header.removesuffix("*")
        named = (
            {stem}
            if stem == header
            else {secret for secret in CREDENTIAL_HEADERS if secret.startswith(stem)}
        )
        if named & CREDENTIAL_HEADERS:
            self.refuse(node, f"{header!r} would let a credential of the session pass")
        return header

    def request(self, node: yaml.Node) -> RequestRule:
        found = self.members(node, ("method", "path", "queries", "spends"))
        path = self.text(found["path"])
        if not path.startswith("/") or "?" in path or "#" in path:
            self.refuse(found["path"], f"{path!r} is not a path")
        return RequestRule(
            method=self.text(found["method"]),
            path=path,
            queries=frozenset(self.each(found["queries"], self.text)),
            spends=self.truth(found["spends"]),
        )

    def limits(self, node: yaml.Node) -> Limits:
        keys = tuple(Limits.__dataclass_fields__)
        found = self.members(node, keys)
        return Limits(**{key: self.count(found[key]) for key in keys})

    def bounds(self, node: yaml.Node) -> Bounds:
        found = self.members(node, tuple(Bounds.__dataclass_fields__))
        return Bounds(
            requests=self.count_or_none(found["requests"]),
            bytes=self.count_or_none(found["bytes"]),
            input_tokens=self.count_or_none(found["input_tokens"]),
            output_tokens=self.count_or_none(found["output_tokens"]),
            dollars=self.dollars_or_none(found["dollars"]),
        )

    def truth(self, node: yaml.Node) -> bool:
        if not isinstance(node, yaml.ScalarNode) or node.value not in ("true", "false"):
            self.refuse(node, "expected true or false")
        return bool(node.value == "true")

    def count_or_none(self, node: yaml.Node) -> int | None:
        return None if _is_null(node) else self.count(node)

    def dollars_or_none(self, node: yaml.Node) -> Decimal | None:
        if _is_null(node):
            return None
        if not isinstance(node, yaml.ScalarNode) or not _DOLLARS.fullmatch(node.value):
            self.refuse(node, "expected dollars in plain decimal digits, or null for no bound")
        return Decimal(node.value)


_DOLLARS = re.compile(r"(0|[1-9][0-9]{0,8})(\.[0-9]{1,6})?")


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"
