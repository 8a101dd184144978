"""Small streams for tests, in the harness's own shape."""

from __future__ import annotations

import json
from typing import Any


def line(**members: Any) -> bytes:
    return json.dumps(members).encode() + b"\n"


def init(**members: Any) -> bytes:
    shown = {
        "cwd": "/workspace",
        "model": "claude-sonnet-4-5",
        "permissionMode": "dontAsk",
        "mcp_servers": [],
        "skills": ["init"],
        "plugins": [{"name": "p", "path": "builtin"}],
        "memory_paths": {"auto": "/session/config/projects/-workspace/memory/"},
        "served_by_anthropic": True,
    }
    return line(type="system", subtype="init", **{**shown, **members})


def blocks(*content: Any, message_id: str = "msg_1", parent: str | None = None) -> bytes:
    message = {"id": message_id, "model": "claude-sonnet-4-5-20250929", "content": list(content)}
    return line(type="assistant", message=message, parent_tool_use_id=parent)


def call(tool: str, arguments: Any, call_id: str = "toolu_1", parent: str | None = None) -> bytes:
    block = {"type": "tool_use", "id": call_id, "name": tool, "input": arguments}
    return blocks(block, parent=parent)


def outcome(call_id: str, *, failed: bool = False) -> bytes:
    block = {"type": "tool_result", "tool_use_id": call_id, "content": "x", "is_error": failed}
    return line(type="user", message={"role": "user", "content": [block]})


def result(text: str | None = "ANSWER: 42", **members: Any) -> bytes:
    shown = {
        "subtype": "success",
        "is_error": False,
        "result": text,
        "total_cost_usd": 0.036864,
        "modelUsage": {"claude-sonnet-4-5": {"canonicalModel": "claude-sonnet-4-5"}},
        "permission_denials": [],
    }
    return line(type="result", **{**shown, **members})
