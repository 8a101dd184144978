"""Sessions as the audit finds them: logs by the sidecar's own writer, and their evidence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxy.bounds import Used
from proxy.egress import EgressLog

POLICY = "sha256:" + "1" * 64
HOST = "api.anthropic.com"
DIGEST = "sha256:" + "2" * 64


def decision(**changes: Any) -> dict[str, Any]:
    """A refusal, by default of a connection to another host."""
    return {
        "connection": 2,
        "request": None,
        "layer": "connect",
        "asked": {"host": "mirror.test", "port": 443, "method": "CONNECT"},
        "decision": "refused",
        "rule": "connect-host",
        "detail": "",
        "status": 403,
        **changes,
    }


def allowed(request: int, **changes: Any) -> dict[str, Any]:
    """A request that left."""
    return decision(
        request=request,
        layer="body",
        asked={"host": HOST, "port": 443, "method": "POST", "path": "/v1/messages?beta=true"},
        decision="allowed",
        rule=None,
        status=None,
        bytes=90,
        said={
            "model": "claude-opus-5",
            "stream": True,
            "head": DIGEST,
            "tools": 0,
            "tools_digest": DIGEST,
            "max_tokens": 5,
            "session": None,
            "follows": None,
            "messages": [],
        },
        **changes,
    )


def answer(request: int, **changes: Any) -> dict[str, Any]:
    """What came back."""
    return {
        "connection": 2,
        "request": request,
        "status": 200,
        "end": "whole",
        "upstream": "192.0.2.1",
        "certificate": DIGEST,
        "request_id": "req_1",
        "sent_bytes": 100,
        "received_bytes": 50,
        "first_byte_ms": 7.5,
        "whole_ms": 9.5,
        "model_asked": "claude-opus-5",
        "model_served": "claude-opus-5-20250929",
        "message": "msg_1",
        "stop_reason": "end_turn",
        "error": None,
        "usage": {"input_tokens": 7, "output_tokens": 3},
        "usage_start": {},
        "blocks": [],
        "whole": True,
        "readable": True,
        **changes,
    }


Lines = tuple[tuple[str, Mapping[str, Any]], ...]

USUAL: Lines = (
    ("decision", decision()),
    ("decision", allowed(1)),
    ("answer", answer(1)),
    ("decision", allowed(2)),
    ("answer", answer(2, first_byte_ms=8.5)),
    ("decision", decision(asked={"host": HOST, "port": 443, "method": "GET", "path": "/x"},
                          layer="request", rule="path", status=404)),
)  # fmt: skip


def write_log(directory: Path, session: str, lines: Lines = USUAL) -> Path:
    """A whole log, from its opening to its closing line."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "egress.jsonl"
    log = EgressLog(path, session)
    bounds = dict.fromkeys(("requests", "bytes", "input_tokens", "output_tokens", "dollars"))
    log.append("open", {"policy": POLICY, "mitmproxy": "12", "bounds": bounds}, durable=False)
    for kind, members in lines:
        log.append(kind, members, durable=False)
    log.close({"used": Used().members(priced=False)})
    return path


def write_evidence(directory: Path, session: str, **changes: Any) -> None:
    """The members of evidence.json that the audit reads, among others."""
    document = {
        "session": session,
        "rehearsal": False,
        "session_container": {"HostConfig": {"NetworkMode": "none"}},
        "egress": {"policy": POLICY, "allowed": []},
        "argv": [],
        **changes,
    }
    (directory / "evidence.json").write_text(json.dumps(document))


def write_batch(out: Path, *sessions: str) -> Path:
    for session in sessions:
        write_log(out / "sessions" / session, session)
        write_evidence(out / "sessions" / session, session)
    return out
