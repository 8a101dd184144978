"""The tools of the MCP servers that a workspace declares, asked for in a check container.

What a server says of its tools is loaded into every session, so it can give an answer away; and
only the server itself can say it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from recorder.engine.client import Engine
from recorder.refusal import ExitCode, Refusal
from recorder.session.check import Program, ProgramEnd, run_program
from recorder.session.harness import LOG_DIRECTORY, WORKSPACE
from recorder.workspace.packing import pack

MCP_FILE = ".mcp.json"
SERVER_SECONDS = 20.0
ALL_SECONDS = 120.0


@dataclass(frozen=True)
class McpTool:
    """One tool. ``texts`` is every text that its server states of it, its name first.

    Among them are its description and every word of its input's schema, whose parameters,
    descriptions and values the model reads. ``name`` is the server's own for it.
    """

    server: str
    name: str
    description: str
    texts: tuple[str, ...]

    @property
    def harness_name(self) -> str:
        """What the harness calls it: ``mcp__<server>__<tool>``."""
        return f"mcp__{self.server}__{self.name}"


@dataclass(frozen=True)
class McpServer:
    """One server with its tools; ``instructions`` is what it tells every session, or empty."""

    name: str
    instructions: str
    tools: tuple[McpTool, ...]


class _Server(msgspec.Struct):
    name: str
    instructions: Any
    tools: list[dict[str, Any]]
    fault: str | None


class _Listed(msgspec.Struct):
    servers: list[_Server]


def list_servers(
    engine: Engine, image: str, tree: Path, *, name: str, labels: Mapping[str, str]
) -> tuple[McpServer, ...]:
    """Every server that ``tree/.mcp.json`` declares with its tools; none without such a file.

    Refusal 8 for a server that could not be asked or lists no tool: an arm with such a server is
    not what its declaration says it is.
    """
    if not (tree / MCP_FILE).is_file():
        return ()
    lister = resources.files("recorder.session").joinpath("mcp_lister.py").read_text("utf-8")
    end = run_program(
        engine,
        image,
        Program(
            argv=("/usr/bin/python3", "-I", "-S", "-c", lister, str(SERVER_SECONDS)),
            trees=(lambda uid: pack(tree, uid, uid, prefix=WORKSPACE.strip("/")),),
            directory=WORKSPACE,
            environment={"CLAUDE_PROJECT_DIR": WORKSPACE, "RECORDER_LOG_DIR": LOG_DIRECTORY},
            seconds=ALL_SECONDS,
        ),
        name=name,
        labels=labels,
    )
    servers = _read(end, tree)
    faults = [
        f"{tree / MCP_FILE}: the MCP server {server.name} lists no tool: "
        f"{server.fault or 'its list is empty'}"
        for server in servers
        if server.fault is not None or not server.tools
    ]
    if faults:
        raise Refusal(ExitCode.INSTRUMENT, *faults)
    return tuple(
        McpServer(
            name=server.name,
            instructions=server.instructions if isinstance(server.instructions, str) else "",
            tools=tuple(_tool(server.name, tool) for tool in server.tools),
        )
        for server in servers
    )


def list_tools(
    engine: Engine, image: str, tree: Path, *, name: str, labels: Mapping[str, str]
) -> tuple[McpTool, ...]:
    """The tools of every server of a tree, sorted by server. Refusals as of ``list_servers``."""
    servers = list_servers(engine, image, tree, name=name, labels=labels)
    return tuple(tool for server in servers for tool in server.tools)


def tool_lister(
    engine: Engine, image: str, *, name: str, labels: Mapping[str, str]
) -> Callable[[Path], Mapping[str, Sequence[str]]]:
    """What a leak check asks of a tree: each tool's texts by its name in the harness.

    A server's instructions stand under ``mcp__<server>``.
    """

    def texts_of(tree: Path) -> dict[str, tuple[str, ...]]:
        texts: dict[str, tuple[str, ...]] = {}
        for server in list_servers(engine, image, tree, name=name, labels=labels):
            if server.instructions:
                texts[f"mcp__{server.name}"] = (server.instructions,)
            texts.update((tool.harness_name, tool.texts) for tool in server.tools)
        return texts

    return texts_of


def _read(end: ProgramEnd, tree: Path) -> list[_Server]:
    try:
        if end.fault or end.exit_code != 0:
            raise ValueError(end.fault or f"it exited {end.exit_code}")
        return msgspec.json.decode(end.stdout, type=_Listed).servers
    except (ValueError, RecursionError) as error:
        said = " ".join(end.stderr[-300:].decode("utf-8", "replace").split())
        raise Refusal(
            ExitCode.INSTRUMENT,
            f"{tree / MCP_FILE}: its servers could not be asked for their tools: {error}"
            + (f" ({said})" if said else ""),
        ) from error


def _tool(server: str, stated: Mapping[str, Any]) -> McpTool:
    name = stated.get("name")
    description = stated.get("description")
    return McpTool(
        server=server,
        name=name if isinstance(name, str) else "",
        description=description if isinstance(description, str) else "",
        texts=tuple(dict.fromkeys(_texts([name, description, stated]))),
    )


def _texts(value: Any) -> Iterator[str]:
    """Every text of a value, the names of its members among them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, member in value.items():
            yield from _texts([key, member])
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
