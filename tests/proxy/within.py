"""The agent's steps, run inside a sidecar's container, for sidecars that live for one test."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.proxy.construction import INSIDE, Exchange, RunningSidecar


def run_within(beside: RunningSidecar, steps: Sequence[Mapping[str, Any]]) -> Exchange:
    source = (INSIDE / "agent.py").read_text()
    line = json.dumps({"number": 0, "steps": list(steps)})
    api = beside.engine.api
    code = f"import io, sys\nsys.stdin = io.StringIO({line!r})\n{source}"
    made = api.exec_create(beside.container, ["/usr/bin/python3", "-I", "-c", code])
    output = api.exec_start(made["Id"])
    answer = json.loads(output.splitlines()[-1])
    return Exchange(
        [base64.b64decode(each) for each in answer["received"]], answer["times"], answer["error"]
    )
