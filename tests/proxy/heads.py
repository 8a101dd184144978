"""A second opinion on a request's bytes, written from RFC 9112 without the sidecar's code.

Where the RFC lets a reader be lenient, this one is not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

HOST = "api.anthropic.com"
TARGETS = {
    f"/v1/messages{more}{query}" for more in ("", "/count_tokens") for query in ("", "?beta=true")
}
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_LINE = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.1")
_FIELD = re.compile(rb"(" + _TOKEN + rb"):[ \t]*([\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?|)[ \t]*")


@dataclass(frozen=True)
class Message:
    """One request as a strict reader reads it. Names of headers in lower case."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]


def strictly(data: bytes) -> Message | None:
    """The one request that the bytes begin with; None where a strict reader finds none."""
    head, end, rest = data.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    first = _LINE.fullmatch(lines[0])
    fields = [_FIELD.fullmatch(line) for line in lines[1:]]
    if not end or not first or not all(fields):
        return None
    headers = tuple(
        (field[1].decode("ascii").lower(), field[2].decode("ascii")) for field in fields if field
    )
    message = Message(first[1].decode("ascii"), first[2].decode("latin-1"), headers, b"")
    if message.values("transfer-encoding"):
        return None
    lengths = message.values("content-length")
    if len(lengths) > 1 or not all(re.fullmatch("[0-9]{1,15}", length) for length in lengths):
        return None
    length = int(lengths[0]) if lengths else 0
    if len(rest) < length:
        return None
    return Message(message.method, message.target, headers, rest[:length])


def strictly_all(data: bytes) -> list[Message]:
    """The requests that the bytes hold one after another, up to the first that is none."""
    found = []
    while (message := strictly(data)) is not None:
        found.append(message)
        data = data[data.index(b"\r\n\r\n") + 4 + len(message.body) :]
    return found


def may_leave(message: Message) -> bool:
    """Whether the shipped policy lets a request with such a head leave, by its own words."""
    return (
        message.method == "POST"
        and message.target in TARGETS
        and [host.removesuffix(":443") for host in message.values("host")] == [HOST]
        and [*message.values("x-api-key"), *message.values("authorization")]
        in (["placeholder"], ["Bearer placeholder"], ["placeholder", "Bearer placeholder"])
        and not message.values("upgrade")
        and not any(coding.lower() != "identity" for coding in message.values("content-encoding"))
        and [kind.partition(";")[0].strip().lower() for kind in message.values("content-type")]
        == ["application/json"]
    )


def connects(data: bytes) -> bool:
    """Whether the bytes begin with a CONNECT to the policy's host and to no other."""
    head, end, _ = data.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    fields = [_FIELD.fullmatch(line) for line in lines[1:]]
    firsts = [f"CONNECT {HOST}:443 HTTP/1.{minor}".encode() for minor in (0, 1)]
    if not end or lines[0] not in firsts or not all(fields):
        return False
    hosts = [field[2].decode() for field in fields if field and field[1].lower() == b"host"]
    return len(hosts) < 2 and all(host in (HOST, f"{HOST}:443") for host in hosts)
