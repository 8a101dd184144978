"""What the sidecar saw of the provider, read from egress lines: one exchange a request. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MESSAGES_PATH = "/v1/messages"


@dataclass(frozen=True, slots=True)
class ToldBlock:
    """A block of a request. ``bare`` is without the harness's reminders, empty where it is one.

    ``result`` is the id of the call whose result it is, empty for any other block.
    """

    digest: str
    bare: str
    result: str = ""


@dataclass(frozen=True, slots=True)
class ToldMessage:
    role: str
    blocks: tuple[ToldBlock, ...]


@dataclass(frozen=True, slots=True)
class GivenBlock:
    """A block of an answer. ``members``: digests of each member of a tool's input, by form."""

    kind: str
    digest: str
    id: str | None
    name: str | None
    members: Mapping[str, Mapping[str, str]] | None
    blank: bool
    broken_off: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request to the messages path and its answer; ``status`` is None where none came."""

    number: int
    model: str | None
    head: str
    tools: int
    tools_digest: str
    session: str | None
    streamed: bool
    messages: tuple[ToldMessage, ...]
    status: int | None
    end: str
    message: str | None
    request_id: str | None
    model_served: str | None
    stop_reason: str | None
    error: str | None
    usage: Mapping[str, Any]
    usage_start: Mapping[str, Any]
    blocks: tuple[GivenBlock, ...]
    whole: bool
    received_bytes: int

    @property
    def told(self) -> tuple[str, ...]:
        """The digests of every assistant block that the request told back, in order."""
        return tuple(
            block.digest
            for message in self.messages
            if message.role == "assistant"
            for block in message.blocks
        )

    @property
    def asked(self) -> tuple[ToldBlock, ...]:
        """Every block of the user's that the request told, in order."""
        return tuple(
            block
            for message in self.messages
            if message.role != "assistant"
            for block in message.blocks
        )

    @property
    def substance(self) -> tuple[GivenBlock, ...]:
        """The blocks of the answer that a harness can show."""
        return tuple(block for block in self.blocks if not block.blank)


@dataclass(frozen=True, slots=True)
class ProviderWitness:
    """Exchanges in the order of their requests. ``token_counts``: requests that only counted."""

    exchanges: tuple[Exchange, ...]
    token_counts: int
    session: str | None


def provider_witness(lines: Iterable[Mapping[str, Any]]) -> ProviderWitness:
    """Read verified egress lines (``proxy.egress.read``).

    Raises KeyError, TypeError or ValueError for lines of another version of the log.
    """
    asked: dict[int, Mapping[str, Any]] = {}
    answers: dict[int, Mapping[str, Any]] = {}
    counts = 0
    session: str | None = None
    for line in lines:
        session = line["session"]
        number = line.get("request")
        if line["kind"] == "answer":
            answers[int(line["request"])] = line
        elif line["kind"] == "decision" and line["decision"] == "allowed" and number is not None:
            if str(line["asked"]["path"]).partition("?")[0] == MESSAGES_PATH:
                asked[int(number)] = line["said"]
            else:
                counts += 1
                # Its messages may be what a later request follows.
                asked[-int(number)] = line["said"]
    expanded: dict[int, list[ToldMessage]] = {}
    for number in sorted(asked, key=abs):
        expanded[abs(number)] = _expanded(asked[number], expanded)
    return ProviderWitness(
        tuple(
            _exchange(number, asked[number], expanded[number], answers.get(number))
            for number in sorted(asked)
            if number > 0
        ),
        counts,
        session,
    )


def _expanded(
    said: Mapping[str, Any], earlier: Mapping[int, Sequence[ToldMessage]]
) -> list[ToldMessage]:
    follows = said["follows"]
    before: list[ToldMessage] = []
    if follows is not None:
        told = earlier[int(follows["request"])]
        before = list(told[: int(follows["messages"])])
        if len(before) != int(follows["messages"]):
            raise ValueError("a request follows more messages than there were")
    for role, *blocks in said["messages"]:
        before.append(ToldMessage(str(role), tuple(map(_told, blocks))))
    return before


def _told(entry: Any) -> ToldBlock:
    if isinstance(entry, str):
        return ToldBlock(entry, entry)
    digest, bare, result = entry
    return ToldBlock(digest, bare, result)


def _exchange(
    number: int,
    said: Mapping[str, Any],
    messages: Sequence[ToldMessage],
    answer: Mapping[str, Any] | None,
) -> Exchange:
    answer = answer or {}
    return Exchange(
        number=number,
        model=said["model"],
        head=said["head"],
        tools=said["tools"],
        tools_digest=said["tools_digest"],
        session=said["session"],
        streamed=said["stream"],
        messages=tuple(messages),
        status=answer.get("status"),
        end=answer.get("end", "failed"),
        message=answer.get("message"),
        request_id=answer.get("request_id"),
        model_served=answer.get("model_served"),
        stop_reason=answer.get("stop_reason"),
        error=answer.get("error"),
        usage=answer.get("usage", {}),
        usage_start=answer.get("usage_start", {}),
        blocks=tuple(map(_given, answer.get("blocks", ()))),
        whole=answer.get("whole", False),
        received_bytes=answer.get("received_bytes", 0),
    )


def _given(entry: Mapping[str, Any]) -> GivenBlock:
    return GivenBlock(
        kind=entry["type"] or "",
        digest=entry["digest"],
        id=entry.get("id"),
        name=entry.get("name"),
        members=entry.get("input"),
        blank=bool(entry.get("blank", False)),
        broken_off=bool(entry.get("broken_off", False)),
    )
