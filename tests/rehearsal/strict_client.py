"""A client of the Messages API that accepts the documented event order and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any


class GrammarError(AssertionError):
    """The stream did something that the API's streaming grammar does not allow."""


def split_events(stream: bytes) -> Iterator[dict[str, Any]]:
    """The events of a stream, each with exactly one ``event`` and one ``data`` line."""
    *frames, rest = stream.split(b"\n\n")
    if rest:
        raise GrammarError(f"bytes after the last event: {rest!r}")
    for frame in frames:
        lines = frame.split(b"\n")
        if len(lines) != 2 or not lines[0].startswith(b"event: "):
            raise GrammarError(f"no event line and data line: {frame!r}")
        if not lines[1].startswith(b"data: "):
            raise GrammarError(f"no data line: {frame!r}")
        event = json.loads(lines[1][6:])
        if event["type"] != lines[0][7:].decode():
            raise GrammarError(f"event and data name two types: {frame!r}")
        yield event


class Assembly:
    """Assembles a message from its events. ``whole`` is true only after ``message_stop``."""

    def __init__(self) -> None:
        self.message: dict[str, Any] | None = None
        self.open: dict[str, Any] | None = None
        self.pieces: list[str] = []
        self.signed = False
        self.stopping = False
        self.whole = False
        self.error: dict[str, Any] | None = None

    def take(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        if self.whole or self.error is not None:
            raise GrammarError(f"{kind} after the end")
        if kind == "error":
            self.error = event["error"]
            return
        if kind == "message_start":
            if self.message is not None:
                raise GrammarError("a second message_start")
            self.message = event["message"]
            assert self.message is not None
            assert self.message["content"] == []
            assert self.message["stop_reason"] is None
            return
        if self.message is None:
            raise GrammarError(f"{kind} before message_start")
        if kind == "ping":
            return
        handler = getattr(self, f"take_{kind}", None)
        if handler is None:
            raise GrammarError(f"no such event: {kind}")
        handler(event)

    def take_content_block_start(self, event: dict[str, Any]) -> None:
        assert self.message is not None
        if self.open is not None or self.stopping:
            raise GrammarError("a block inside a block, or after message_delta")
        if event["index"] != len(self.message["content"]):
            raise GrammarError("indices are not consecutive")
        self.open, self.pieces, self.signed = dict(event["content_block"]), [], False
        empty = {"text": "text", "thinking": "thinking", "tool_use": "input"}[self.open["type"]]
        assert not self.open[empty], "a block starts empty"

    def take_content_block_delta(self, event: dict[str, Any]) -> None:
        assert self.message is not None
        if self.open is None or event["index"] != len(self.message["content"]):
            raise GrammarError("a delta outside its block")
        delta = event["delta"]
        if self.signed:
            raise GrammarError("a delta after the signature")
        if delta["type"] == "signature_delta" and self.open["type"] == "thinking":
            self.open["signature"], self.signed = delta["signature"], True
            return
        expected = {"text": "text", "thinking": "thinking", "tool_use": "input_json"}
        if delta["type"] != f"{expected[self.open['type']]}_delta":
            raise GrammarError(f"{delta['type']} in a block of type {self.open['type']}")
        (piece,) = (value for key, value in delta.items() if key != "type")
        assert piece, "an empty delta"
        self.pieces.append(piece)

    def take_content_block_stop(self, event: dict[str, Any]) -> None:
        assert self.message is not None
        if self.open is None or event["index"] != len(self.message["content"]):
            raise GrammarError("a stop outside its block")
        kind, text = self.open["type"], "".join(self.pieces)
        if kind == "tool_use":
            self.open["input"] = json.loads(text)
        else:
            self.open[kind] = text
        if kind == "thinking" and not self.signed:
            raise GrammarError("thinking without a signature")
        self.message["content"].append(self.open)
        self.open = None

    def take_message_delta(self, event: dict[str, Any]) -> None:
        assert self.message is not None
        if self.open is not None or self.stopping:
            raise GrammarError("message_delta inside a block, or twice")
        self.stopping = True
        self.message.update(event["delta"])
        self.message["usage"] = {**self.message["usage"], **event["usage"]}

    def take_message_stop(self, event: dict[str, Any]) -> None:
        assert event == {"type": "message_stop"}
        if not self.stopping:
            raise GrammarError("message_stop without message_delta")
        self.whole = True


def assemble(events: Iterable[dict[str, Any]]) -> Assembly:
    """Take every event of a stream."""
    assembly = Assembly()
    for event in events:
        assembly.take(event)
    return assembly
