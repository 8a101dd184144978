"""The agent's steps, run inside a sidecar's container, for sidecars that live for one test."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.proxy.construction import INSIDE, Exchange, RunningSidecar


def run_within(beside: RunningSidecar, steps: Sequence[Mapping[str, Any]]) -> Exchange:
    """One connection."""
    return run_within_all(beside, [steps])[0]


def run_within_all(
    beside: RunningSidecar, connections: Sequence[Sequence[Mapping[str, Any]]]
) -> list[Exchange]:
    """Several connections at once."""
    source = (INSIDE / "agent.py").read_text()
    told = "\n".join(
        json.dumps({"number": number, "steps": list(steps)})
        for number, steps in enumerate(connections)
    )
    api = beside.engine.api
    code = f"import io, sys\nsys.stdin = io.StringIO({told!r})\n{source}"
    made = api.exec_create(beside.container, ["/usr/bin/python3", "-I", "-c", code])
    answers = {
        answer["number"]: answer
        for answer in map(json.loads, api.exec_start(made["Id"]).splitlines())
    }
    return [
        Exchange(
            [base64.b64decode(each) for each in answers[number]["received"]],
            answers[number]["times"],
            answers[number]["error"],
        )
        for number in range(len(connections))
    ]
