"""What the rehearsal provider says: a request read, an answer built, its events in order.

Pure. The shapes are the Messages API's: ``message_start``, ``ping``, for each block
``content_block_start``, deltas, ``content_block_stop``, then ``message_delta`` with the usage
and ``message_stop``. Identifiers are derived from who asks for what, so that the same rehearsal
gives the same bytes, and they carry ``rehearsal``, so that no record of one passes for a
measurement.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias, cast

import msgspec

from recorder.rehearsal.script import (
    Block,
    ErrorName,
    ErrorStatus,
    Json,
    Text,
    Thinking,
    ToolUse,
    Turn,
    TurnUsage,
    place_workspace,
)

Event: TypeAlias = Mapping[str, Json]

MESSAGE_PREFIX = "msg_rehearsal"
REQUEST_PREFIX = "req_rehearsal"
TOOL_PREFIX = "toolu_rehearsal"
SERVED_DATE = "20250929"
SIDE_ANSWER = '{"title": "Rehearsal"}'
# base64 of "rehearsal": the harness sends a signature back and never reads it.
SIGNATURE = "cmVoZWFyc2Fs"

_TEXT_PIECE = 24
_THINKING_PIECE = 40
_INPUT_PIECES = 60
_BYTES_PER_TOKEN = 4
_UNCACHED_TOKENS = 4

_NO_CREDIT = (
    "Your credit balance is too low to access the Anthropic API. "
    "Please go to Plans & Billing to upgrade or purchase credits."
)

_ERRORS: Mapping[ErrorName, tuple[int, str, str]] = {
    "400": (400, "invalid_request_error", "messages.0: invalid request (rehearsed)"),
    "401": (401, "authentication_error", "invalid x-api-key"),
    "403": (
        403,
        "permission_error",
        "Your API key does not have permission to use the specified resource.",
    ),
    "404": (404, "not_found_error", "model: not found (rehearsed)"),
    "413": (413, "request_too_large", "Request exceeds the maximum size"),
    "429": (
        429,
        "rate_limit_error",
        "This request would exceed your organization's rate limit of input tokens per minute.",
    ),
    "500": (500, "api_error", "Internal server error"),
    "529": (529, "overloaded_error", "Overloaded"),
    "credit": (
        400,
        "invalid_request_error",
        _NO_CREDIT,
    ),
    "too-long": (
        400,
        "invalid_request_error",
        "prompt is too long: 210035 tokens > 200000 maximum",
    ),
}


class RequestError(Exception):
    """A request that the real API would refuse too: status, error type and message."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message


class MessagesRequest(msgspec.Struct, frozen=True):
    """What of a Messages request decides the answer.

    ``position`` is the number of assistant messages it already holds. ``first_text`` is the text
    of its first user message. ``prefix_bytes`` and ``new_bytes`` are the JSON sizes of what the
    provider saw at the answer before and of what came since.
    """

    model: str
    stream: bool
    has_tools: bool
    position: int
    first_text: str
    prefix_bytes: int
    new_bytes: int


class Usage(msgspec.Struct, frozen=True):
    """Token counts of one answer."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int


class Answer(msgspec.Struct, frozen=True):
    """One whole answer, from which both forms (streamed and not) are made."""

    message_id: str
    model: str
    content: tuple[Mapping[str, Json], ...]
    stop_reason: str
    usage: Usage


class HttpError(msgspec.Struct, frozen=True):
    """An error answer: status, headers beside the ordinary ones, body."""

    status: int
    headers: Mapping[str, str]
    body: Event


def read_request(body: bytes) -> MessagesRequest:
    """Read a Messages request. Raises ``RequestError`` in the API's own words."""
    try:
        given: object = json.loads(body)
    except (ValueError, RecursionError):
        raise _invalid("the request body is not valid JSON") from None
    if not isinstance(given, dict):
        raise _invalid("the request body must be an object")
    model, messages = given.get("model"), given.get("messages")
    if not isinstance(model, str) or not model:
        raise _invalid("model: Field required")
    if not isinstance(messages, list) or not messages:
        raise _invalid("messages: at least one message is required")
    roles: list[str] = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise _invalid(f"messages.{index}: must be an object with a role")
        roles.append(message["role"])
    answered = [index for index, role in enumerate(roles) if role == "assistant"]
    since = messages[answered[-1] :] if answered else []
    new = len(json.dumps(since)) if since else len(body)
    first = next((m for m, role in zip(messages, roles, strict=True) if role == "user"), None)
    return MessagesRequest(
        model=model,
        stream=given.get("stream") is True,
        has_tools=bool(given.get("tools")),
        position=len(answered),
        first_text=_text_of(first.get("content")) if first else "",
        prefix_bytes=max(0, len(body) - new),
        new_bytes=new,
    )


def _invalid(message: str) -> RequestError:
    return RequestError(400, "invalid_request_error", message)


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (block.get("text") for block in content if isinstance(block, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


def served_model(requested: str) -> str:
    """The dated name of the model served, as the real provider states it."""
    name = requested.removesuffix("[1m]")
    return name if re.search(r"-20\d{6}$", name) else f"{name}-{SERVED_DATE}"


def estimate_usage(request: MessagesRequest, content: Sequence[Event], given: TurnUsage) -> Usage:
    """Token counts that cost about what a real session of these bytes would.

    Everything up to the answer before is read from the cache, everything since is written to it.
    """
    output = sum(max(4, len(json.dumps(block)) // _BYTES_PER_TOKEN) for block in content)
    return Usage(
        input_tokens=_or(given.input_tokens, _UNCACHED_TOKENS),
        cache_creation_input_tokens=_or(
            given.cache_creation_input_tokens, request.new_bytes // _BYTES_PER_TOKEN
        ),
        cache_read_input_tokens=_or(
            given.cache_read_input_tokens, request.prefix_bytes // _BYTES_PER_TOKEN
        ),
        output_tokens=_or(given.output_tokens, max(1, output)),
    )


def _or(given: int | None, estimate: int) -> int:
    return estimate if given is None else given


def count_tokens(body: bytes) -> Event:
    """The answer of ``count_tokens`` for a request body."""
    return {"input_tokens": max(1, len(body) // _BYTES_PER_TOKEN)}


def build_answer(turn: Turn, request: MessagesRequest, *, seed: str, workspace: str) -> Answer:
    """The answer of a turn. ``seed`` names the attempt, and identifiers derive from it."""
    content = tuple(
        _content_block(place_workspace(block, workspace), f"{seed}#{index}")
        for index, block in enumerate(turn.content)
    )
    calls = any(isinstance(block, ToolUse) for block in turn.content)
    return Answer(
        message_id=_identifier(MESSAGE_PREFIX, seed),
        model=served_model(request.model),
        content=content,
        stop_reason=turn.stop_reason or ("tool_use" if calls else "end_turn"),
        usage=estimate_usage(request, content, turn.usage),
    )


def side_answer(request: MessagesRequest, *, seed: str) -> Answer:
    """A short text for a request without tools: a title, or another call beside the task's."""
    turn = Turn(content=(Text(SIDE_ANSWER),))
    return build_answer(turn, request, seed=seed, workspace="")


def _identifier(prefix: str, seed: str) -> str:
    return prefix + hashlib.sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()[:20]


def _content_block(block: Block, seed: str) -> Mapping[str, Json]:
    if isinstance(block, Text):
        return {"type": "text", "text": block.text}
    if isinstance(block, Thinking):
        return {"type": "thinking", "thinking": block.thinking, "signature": SIGNATURE}
    return {
        "type": "tool_use",
        "id": _identifier(TOOL_PREFIX, seed),
        "name": block.name,
        "input": block.input,
    }


def whole_message(answer: Answer) -> Event:
    """The body of an answer that is not streamed."""
    return {
        **_message_head(answer),
        "content": list(answer.content),
        "stop_reason": answer.stop_reason,
        "stop_sequence": None,
        "usage": _usage_members(answer.usage, answer.usage.output_tokens),
    }


def _message_head(answer: Answer) -> dict[str, Json]:
    return {
        "id": answer.message_id,
        "type": "message",
        "role": "assistant",
        "model": answer.model,
    }


def _usage_members(usage: Usage, output_tokens: int) -> Mapping[str, Json]:
    return {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_creation_input_tokens,
        "cache_read_input_tokens": usage.cache_read_input_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_creation_input_tokens,
            "ephemeral_1h_input_tokens": 0,
        },
        "output_tokens": output_tokens,
        "service_tier": "standard",
    }


def stream_events(answer: Answer) -> list[Event]:
    """Every event of a streamed answer, in order."""
    events: list[Event] = [
        {
            "type": "message_start",
            "message": {
                **_message_head(answer),
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                # The real API states one output token here and the count in message_delta.
                "usage": _usage_members(answer.usage, 1),
            },
        },
        {"type": "ping"},
    ]
    for index, block in enumerate(answer.content):
        opening, deltas = _streamed_block(block)
        events.append({"type": "content_block_start", "index": index, "content_block": opening})
        events.extend(
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        )
        events.append({"type": "content_block_stop", "index": index})
    events.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": answer.stop_reason, "stop_sequence": None},
            "usage": {
                "input_tokens": answer.usage.input_tokens,
                "cache_creation_input_tokens": answer.usage.cache_creation_input_tokens,
                "cache_read_input_tokens": answer.usage.cache_read_input_tokens,
                "output_tokens": answer.usage.output_tokens,
            },
        }
    )
    events.append({"type": "message_stop"})
    return events


def _streamed_block(block: Mapping[str, Json]) -> tuple[Mapping[str, Json], list[Event]]:
    if block["type"] == "text":
        pieces = _pieces(cast("str", block["text"]), _TEXT_PIECE)
        return {"type": "text", "text": ""}, [
            {"type": "text_delta", "text": piece} for piece in pieces
        ]
    if block["type"] == "thinking":
        pieces = _pieces(cast("str", block["thinking"]), _THINKING_PIECE)
        deltas: list[Event] = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {"type": "thinking", "thinking": "", "signature": ""}, deltas
    written = json.dumps(block["input"])
    pieces = _pieces(written, max(_TEXT_PIECE, -(-len(written) // _INPUT_PIECES)))
    opening = {"type": "tool_use", "id": block["id"], "name": block["name"], "input": {}}
    return cast("Mapping[str, Json]", opening), [
        {"type": "input_json_delta", "partial_json": piece} for piece in pieces
    ]


def _pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def half_of(events: Sequence[Event]) -> Sequence[Event]:
    """The events before an interruption: half of the deltas, and never the end of a message."""
    deltas = [at for at, event in enumerate(events) if event["type"] == "content_block_delta"]
    if not deltas:
        return events[:2]
    return events[: deltas[len(deltas) // 2] + (len(deltas) == 1)]


def error_event(kind: str) -> Event:
    """An error inside a stream."""
    message = "Overloaded" if kind == "overloaded_error" else "Internal server error"
    return {"type": "error", "error": {"type": kind, "message": message}}


def error_answer(failure: ErrorStatus, request_id: str) -> HttpError:
    """A scripted error in the provider's own shape, with its retry headers."""
    status, kind, message = _ERRORS[failure.name]
    headers = {"x-should-retry": "true" if status in (429, 500, 529) else "false"}
    if failure.retry_after is not None:
        headers["retry-after"] = f"{failure.retry_after:g}"
    return HttpError(status, headers, error_body(kind, message, request_id))


def error_body(kind: str, message: str, request_id: str) -> Event:
    """The body of every error of the API."""
    return {
        "type": "error",
        "error": {"type": kind, "message": message},
        "request_id": request_id,
    }


def encode_event(event: Event) -> bytes:
    """One server-sent event."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
