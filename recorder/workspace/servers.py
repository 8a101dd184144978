"""The MCP servers that a tree declares for the harness."""

from __future__ import annotations

import json
from pathlib import Path

from recorder.refusal import ExitCode, Refusal

MCP_FILE = ".mcp.json"


def servers_of(path: Path) -> frozenset[str]:
    """The names of the MCP servers that a ``.mcp.json`` declares. Refusal 2 for a broken one."""
    try:
        document = json.loads(path.read_bytes())
        servers = document["mcpServers"]
        if not isinstance(servers, dict):
            raise TypeError("mcpServers is not an object")
    except FileNotFoundError:
        # A tree without the file declares no server.
        return frozenset()
    except (ValueError, KeyError, TypeError) as error:
        raise Refusal(
            ExitCode.USAGE, f"{path}: declares no MCP servers that can be read: {error!r}"
        ) from error
    return frozenset(servers)
