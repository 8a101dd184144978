"""What a forger does to a recorded pair: raw lines edited, egress lines edited and chained anew."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.egress import START, digest_of_line

Line = dict[str, Any]


@dataclass
class Pair:
    """A raw stream and an egress log as values; ``raw_lines`` and ``egress_lines`` as bytes."""

    raw: list[Line]
    egress: list[Line]
    name: str
    notes: list[str] = field(default_factory=list)

    def copy(self) -> Pair:
        return copy.deepcopy(self)

    @property
    def raw_lines(self) -> list[bytes]:
        return [json.dumps(line).encode() + b"\n" for line in self.raw]

    @property
    def egress_lines(self) -> list[bytes]:
        """The log with sequence, chain and count put right: a forger who can write it does so."""
        lines: list[bytes] = []
        previous = START
        allowed = sum(each.get("decision") == "allowed" for each in self.egress[:-1])
        for number, line in enumerate(self.egress, start=1):
            members = {**line, "sequence": number, "previous": previous}
            if members["kind"] == "close":
                members |= {"count": number, "allowed": allowed}
            written = json.dumps(members, ensure_ascii=True, separators=(",", ":")).encode()
            previous = digest_of_line(written)
            lines.append(written + b"\n")
        return lines

    # The parts that a forgery names.

    def lines(self, kind: str) -> list[Line]:
        return [line for line in self.raw if line["type"] == kind]

    @property
    def assistant(self) -> list[Line]:
        return self.lines("assistant")

    @property
    def result(self) -> Line:
        return self.lines("result")[-1]

    def block(self, kind: str, tool: str | None = None) -> dict[str, Any]:
        """The first assistant block of a kind."""
        return next(
            block
            for line in self.assistant
            for block in line["message"]["content"]
            if block["type"] == kind and (tool is None or block["name"] == tool)
        )

    def holder(self, kind: str) -> Line:
        """The first assistant line that holds a block of a kind."""
        return next(
            line
            for line in self.assistant
            if any(block["type"] == kind for block in line["message"]["content"])
        )

    def results(self) -> Iterator[tuple[Line, dict[str, Any]]]:
        """User lines with their tool_result block."""
        for line in self.lines("user"):
            for block in line["message"]["content"]:
                if isinstance(block, dict) and block["type"] == "tool_result":
                    yield line, block

    def answers(self) -> list[Line]:
        return [line for line in self.egress if line["kind"] == "answer"]

    def requests(self) -> list[Line]:
        return [line for line in self.egress if line.get("said")]


def pair_of(raw: Sequence[bytes], egress: Sequence[bytes], name: str) -> Pair:
    return Pair([json.loads(line) for line in raw], [json.loads(line) for line in egress], name)


Forgery = Callable[[Pair], None]


def answer_line(pair: Pair, answer: Line, block: dict[str, Any]) -> Line:
    """An assistant line as the harness would print a block of this answer."""
    line = copy.deepcopy(pair.assistant[-1])
    message = line["message"]
    message |= {
        "id": answer["message"],
        "model": answer["model_served"],
        "content": [block],
        "usage": answer["usage_start"],
    }
    line["request_id"] = answer["request_id"]
    return line
