"""An MCP server over standard input and output: the documents of this tree, by identifier.

Standard library only. It reads ``docs/`` below its working directory and writes nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SHELVES = Path("docs")
TOOLS = [
    {
        "name": "list_documents",
        "description": "List the identifier, status, path and summary of every document.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "status": {"type": "string", "description": "Only documents of this status."}
            },
        },
    },
    {
        "name": "read_document",
        "description": "Print the document that has an identifier.",
        "inputSchema": {
            "type": "object",
            "properties": {"identifier": {"type": "string", "description": "Its identifier."}},
            "required": ["identifier"],
        },
    },
]


def documents() -> Iterator[tuple[dict[str, str], Path, str]]:
    """Every document with front matter: its members, its path, its text."""
    for path in sorted(SHELVES.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        head, separator, _ = text.removeprefix("---\n").partition("\n---\n")
        if text.startswith("---\n") and separator:
            lines = (line.partition(": ") for line in head.splitlines() if ": " in line)
            yield {key.strip(): value.strip() for key, _, value in lines}, path, text


def call(name: str, arguments: dict[str, Any]) -> str:
    """The text that a tool answers. Raises ``LookupError`` for what it cannot find."""
    if name == "list_documents":
        wanted = arguments.get("status")
        rows = [
            f"{members.get('id', '-')} {members.get('status', '-')} {path} {members.get('summary')}"
            for members, path, _ in documents()
            if wanted in (None, members.get("status"))
        ]
        return "\n".join(rows)
    if name == "read_document":
        for members, _, text in documents():
            if members.get("id") == arguments.get("identifier"):
                return text
        raise LookupError(f"no document has the identifier {arguments.get('identifier')!r}")
    raise LookupError(f"no tool is called {name!r}")


def answer(method: str, parameters: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request, or ``None`` where the method is not known."""
    if method == "initialize":
        return {
            "protocolVersion": parameters.get("protocolVersion", "2024-11-05"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "documents", "version": "1.0.0"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        try:
            text = call(str(parameters.get("name")), parameters.get("arguments") or {})
        except LookupError as error:
            return {"content": [{"type": "text", "text": str(error.args[0])}], "isError": True}
        return {"content": [{"type": "text", "text": text}]}
    return {} if method == "ping" else None


def main() -> None:
    """Answer one request a line until standard input ends."""
    for line in sys.stdin:
        try:
            request = json.loads(line)
        except ValueError:
            continue
        if not isinstance(request, dict) or "id" not in request:
            continue
        response: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        result = answer(str(request.get("method")), request.get("params") or {})
        if result is None:
            response["error"] = {"code": -32601, "message": "no such method"}
        else:
            response["result"] = result
        print(json.dumps(response), flush=True)


if __name__ == "__main__":
    main()
