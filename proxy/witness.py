"""What the provider was asked and what it answered, as digests: the second witness of a session.

A content block has one digest whichever way it travels: as the provider streams it, as it gives it
whole, and as the harness tells it back in the next request. Markers that move from request to
request (`cache_control`) are left out of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LONGEST_JSON_ANSWER = 32 * 1024 * 1024
LONGEST_EVENT = 32 * 1024 * 1024


def canonical(value: Any) -> bytes:
    """One spelling of a JSON value: keys sorted, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def digest(value: Any) -> str:
    """`sha256:` and the hex digest of a JSON value's canonical spelling."""
    return "sha256:" + hashlib.sha256(canonical(value)).hexdigest()


def block_digest(block: Mapping[str, Any]) -> str:
    """The digest of one content block, over the members that are its substance."""
    kind = block.get("type")
    match kind:
        case "text":
            substance: Any = {"type": kind, "text": block.get("text", "")}
        case "thinking":
            substance = {
                "type": kind,
                "thinking": block.get("thinking", ""),
                "signature": block.get("signature", ""),
            }
        case "redacted_thinking":
            substance = {"type": kind, "data": block.get("data", "")}
        case "tool_use":
            substance = {
                "type": kind,
                "id": block.get("id"),
                "name": block.get("name"),
                "input": block.get("input"),
            }
        case "tool_result":
            substance = {
                "type": kind,
                "tool_use_id": block.get("tool_use_id"),
                "content": [_plain(each) for each in blocks_of(block.get("content"))],
                "is_error": bool(block.get("is_error", False)),
            }
        case _:
            substance = _plain(block)
    return digest(substance)


def blocks_of(content: Any) -> Sequence[Any]:
    """A message's content as a list of blocks; a bare string is one text block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if key != "cache_control"}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def request_members(document: Mapping[str, Any]) -> dict[str, Any]:
    """What the log says of a request's body: model, head digest, each message's block digests."""
    head = {
        key: _plain(document.get(key))
        for key in ("system", "tools", "tool_choice", "model", "max_tokens")
    }
    messages = document.get("messages")
    return {
        "model": _short(document.get("model")),
        "stream": document.get("stream") is True,
        "head": digest(head),
        "tools": len(document["tools"]) if isinstance(document.get("tools"), list) else 0,
        "messages": [
            [_short(message.get("role")), *_digests(message.get("content"))]
            for message in (messages if isinstance(messages, list) else [])
            if isinstance(message, dict)
        ],
    }


def _digests(content: Any) -> list[str]:
    return [
        block_digest(block) if isinstance(block, dict) else digest(block)
        for block in blocks_of(content)
    ]


def _short(value: Any) -> str | None:
    return value[:100] if isinstance(value, str) else None


@dataclass
class AnswerReader:
    """Reads one answer while it streams by: SSE or one JSON object. Feed it, then ask `members`.

    Memory: the block that is underway, or the whole of a JSON answer.
    """

    event_stream: bool
    message: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    error: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    blocks: list[dict[str, Any]] = field(default_factory=list)
    whole: bool = False
    readable: bool = True
    _buffer: bytearray = field(default_factory=bytearray)
    _open: dict[int, dict[str, Any]] = field(default_factory=dict)
    _parts: dict[int, list[str]] = field(default_factory=dict)

    def feed(self, data: bytes) -> None:
        """Bytes of the body, in any split; an empty `data` says that they ended."""
        self._buffer += data
        if not self.event_stream:
            if len(self._buffer) > LONGEST_JSON_ANSWER:
                self._unreadable()
            elif not data and self.readable:
                self._one_object()
            return
        if not self.readable:
            self._buffer.clear()
            return
        start = 0
        while (end := self._buffer.find(b"\n", start)) >= 0:
            line = bytes(self._buffer[start:end]).rstrip(b"\r")
            start = end + 1
            if line.startswith(b"data:"):
                self._event(line[5:].strip())
        del self._buffer[:start]
        if len(self._buffer) > LONGEST_EVENT:
            self._unreadable()

    def members(self) -> dict[str, Any]:
        """What the log says of the answer."""
        return {
            "message": self.message,
            "model_served": self.model,
            "stop_reason": self.stop_reason,
            "error": self.error,
            "usage": self.usage,
            "blocks": self.blocks,
            "whole": self.whole,
            "readable": self.readable,
        }

    def _unreadable(self) -> None:
        self.readable = False
        self._buffer.clear()

    def _one_object(self) -> None:
        try:
            value = json.loads(self._buffer)
        except (ValueError, RecursionError):
            self._unreadable()
            return
        if not isinstance(value, dict):
            self._unreadable()
            return
        if value.get("type") == "error":
            self._error(value)
            return
        self._message(value)
        self._usage(value)
        if isinstance(value.get("input_tokens"), int):
            self.usage["input_tokens"] = value["input_tokens"]
        for block in blocks_of(value.get("content")):
            if isinstance(block, dict):
                self._finished(block)
        self.whole = True

    def _event(self, data: bytes) -> None:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            self._unreadable()
            return
        if not isinstance(value, dict):
            self._unreadable()
            return
        index = value.get("index")
        match value.get("type"):
            case "message_start" if isinstance(value.get("message"), dict):
                self._message(value["message"])
                self._usage(value["message"])
            case "content_block_start" if isinstance(
                value.get("content_block"), dict
            ) and isinstance(index, int):
                self._open[index] = dict(value["content_block"])
                self._parts[index] = []
            case "content_block_delta" if index in self._open:
                self._delta(index, value.get("delta"))
            case "content_block_stop" if index in self._open:
                self._stop(index)
            case "message_delta":
                delta = value.get("delta")
                if isinstance(delta, dict) and isinstance(delta.get("stop_reason"), str):
                    self.stop_reason = _short(delta["stop_reason"])
                self._usage(value)
            case "message_stop":
                self.whole = True
            case "error":
                self._error(value)

    def _delta(self, index: int, delta: Any) -> None:
        if not isinstance(delta, dict):
            return
        block, parts = self._open[index], self._parts[index]
        match delta.get("type"):
            case "text_delta":
                parts.append(str(delta.get("text", "")))
            case "thinking_delta":
                parts.append(str(delta.get("thinking", "")))
            case "input_json_delta":
                parts.append(str(delta.get("partial_json", "")))
            case "signature_delta":
                block["signature"] = str(block.get("signature", "")) + str(delta.get("signature"))
            case _:
                block.setdefault("deltas", []).append(delta)

    def _stop(self, index: int) -> None:
        block, text = self._open.pop(index), "".join(self._parts.pop(index))
        match block.get("type"):
            case "text":
                block["text"] = str(block.get("text", "")) + text
            case "thinking":
                block["thinking"] = str(block.get("thinking", "")) + text
            case _ if text:
                # Input that is no JSON keeps its raw text; the harness tells it back another way.
                try:
                    block["input"] = json.loads(text)
                except (ValueError, RecursionError):
                    block["input"] = text
        self._finished(block)

    def _finished(self, block: Mapping[str, Any]) -> None:
        entry: dict[str, Any] = {"type": _short(block.get("type")), "digest": block_digest(block)}
        if block.get("type") == "tool_use":
            entry["id"] = _short(block.get("id"))
            entry["name"] = _short(block.get("name"))
        self.blocks.append(entry)

    def _message(self, message: Mapping[str, Any]) -> None:
        self.message = _short(message.get("id"))
        self.model = _short(message.get("model"))
        self.stop_reason = _short(message.get("stop_reason"))

    def _usage(self, holder: Mapping[str, Any]) -> None:
        usage = holder.get("usage")
        if isinstance(usage, dict):
            self.usage.update(_numbers(usage))

    def _error(self, value: Mapping[str, Any]) -> None:
        error = value.get("error")
        self.error = _short(error.get("type")) if isinstance(error, dict) else "unknown"


def _numbers(usage: Mapping[str, Any]) -> dict[str, Any]:
    """The counts of a usage object, one level of nesting deep; words longer than a name are not."""
    kept: dict[str, Any] = {}
    for key, value in usage.items():
        if type(value) in (int, float) or (isinstance(value, str) and len(value) <= 40):
            kept[key[:60]] = value
        elif isinstance(value, dict):
            kept[key[:60]] = {
                each[:60]: count for each, count in value.items() if type(count) in (int, float)
            }
    return kept


class SecretCutter:
    """Lets a stream of bytes through until the secret begins in it, however it is split.

    Holds back only a tail that could be the secret's beginning, so nothing else is delayed.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._held = b""
        self.found = False

    def feed(self, data: bytes) -> bytes:
        """The bytes that may go on now; with an empty `data`, what was held back."""
        if self.found:
            return b""
        if not self._secret:
            return data
        joined = self._held + data
        self._held = b""
        at = joined.find(self._secret)
        if at >= 0:
            self.found = True
            return joined[:at]
        if not data:
            return joined
        for length in range(min(len(self._secret) - 1, len(joined)), 0, -1):
            if joined.endswith(self._secret[:length]):
                self._held = joined[-length:]
                return joined[:-length]
        return joined
