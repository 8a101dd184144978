"""Asks each MCP server of ``./.mcp.json`` for its tools and prints them as one line of JSON.

Run inside a check container as ``python3 -I -S -c <this text> SECONDS``: the servers are code of a
workspace, and nothing but a container runs that. Standard library only.

It prints ``{"servers": [{"name", "instructions", "tools", "fault"}]}`` in the order of their names;
``tools`` are as the server stated them. A fault says why there are none.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

PROTOCOL = "2025-06-18"
LONGEST_OUTPUT = 8 << 20
MOST_PAGES = 50
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class ServerError(Exception):
    """Why a server's tools are not known."""


def expanded(value: object) -> str:
    """``${NAME}`` and ``${NAME:-default}`` as the harness expands them in a declaration."""

    def one(found: re.Match[str]) -> str:
        name: str = found.group(1)
        default: str | None = found.group(2)
        if name in os.environ:
            return os.environ[name]
        if default is None:
            raise ServerError(f"it names the variable {name}, which a session does not have")
        return default

    if not isinstance(value, str):
        raise ServerError("its command, arguments and environment are not all texts")
    return _VARIABLE.sub(one, value)


class Server:
    def __init__(self, declared: object, deadline: float) -> None:
        if not isinstance(declared, dict) or declared.get("type", "stdio") != "stdio":
            raise ServerError("it is not started by a command, and a session reaches no other")
        if "command" not in declared:
            raise ServerError("it declares no command")
        self.deadline = deadline
        self.buffer = b""
        self.read = 0
        self.number = 0
        argv = [expanded(declared["command"]), *map(expanded, declared.get("args") or [])]
        own = {name: expanded(value) for name, value in (declared.get("env") or {}).items()}
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the server
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={**os.environ, **own},
            start_new_session=True,
        )
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("a pipe was asked for and not made")
        self.standard_input = self.process.stdin
        self.standard_output = self.process.stdout

    def send(self, message: object) -> None:
        try:
            self.standard_input.write(json.dumps(message).encode() + b"\n")
            self.standard_input.flush()
        except BrokenPipeError:
            raise ServerError(f"it ended before it was asked{self.said()}") from None

    def said(self) -> str:
        """The last line of its standard error."""
        self.errors.flush()
        size = self.errors.seek(0, 2)
        self.errors.seek(max(0, size - 2000))
        lines = self.errors.read().decode("utf-8", "replace").split("\n")
        last = [line.strip() for line in lines if line.strip()][-1:]
        return f" ({last[0][:300]})" if last else ""

    def line(self) -> bytes:
        output = self.standard_output.fileno()
        while b"\n" not in self.buffer:
            left = self.deadline - time.monotonic()
            if left <= 0 or not select.select([output], [], [], left)[0]:
                raise ServerError(f"it did not answer in time{self.said()}")
            piece = os.read(output, 65536)
            if not piece:
                raise ServerError(f"it ended without an answer{self.said()}")
            self.buffer += piece
            self.read += len(piece)
            if self.read > LONGEST_OUTPUT:
                raise ServerError(f"it printed more than {LONGEST_OUTPUT} bytes")
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line

    def ask(self, method: str, parameters: object) -> dict[str, Any]:
        self.number += 1
        number = self.number
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": parameters})
        while True:
            line = self.line()
            if not line.strip():
                continue
            try:
                answer = json.loads(line)
            except (ValueError, RecursionError):
                raise ServerError(f"it printed {line[:80]!r}, which is no message") from None
            if not isinstance(answer, dict):
                raise ServerError("it printed a message that is no object")
            # Its own notifications and requests are not what is asked here.
            if answer.get("id") != number or "method" in answer:
                continue
            if not isinstance(answer.get("result"), dict):
                raise ServerError(f"it answered {method} with {json.dumps(answer)[:200]}")
            return cast("dict[str, Any]", answer["result"])

    def list_tools(self) -> tuple[object, list[dict[str, Any]]]:
        client = {"name": "recorder", "version": "1"}
        started = self.ask(
            "initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client}
        )
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        tools: list[dict[str, Any]] = []
        page: dict[str, object] = {}
        for _ in range(MOST_PAGES):
            listed = self.ask("tools/list", page)
            found = listed.get("tools")
            if not isinstance(found, list) or not all(isinstance(tool, dict) for tool in found):
                raise ServerError("its list of tools is no list of objects")
            tools += found
            if not listed.get("nextCursor"):
                break
            page = {"cursor": listed["nextCursor"]}
        else:
            raise ServerError(f"its list of tools has more than {MOST_PAGES} pages")
        return started.get("instructions"), tools


def ask_server(name: str, declared: object, seconds: float) -> dict[str, object]:
    entry: dict[str, object] = {"name": name, "instructions": None, "tools": [], "fault": None}
    server = None
    try:
        server = Server(declared, time.monotonic() + seconds)
        entry["instructions"], entry["tools"] = server.list_tools()
    except ServerError as error:
        entry["fault"] = str(error)
    except OSError as error:
        entry["fault"] = f"it could not be started: {error}"
    finally:
        if server is not None:
            server.process.kill()
    return entry


def main() -> None:
    declared = json.loads(Path(".mcp.json").read_bytes())["mcpServers"]
    seconds = float(sys.argv[1])
    servers = [ask_server(name, declared[name], seconds) for name in sorted(declared)]
    print(json.dumps({"servers": servers}), flush=True)


if __name__ == "__main__":
    main()
