"""The init line is the check: what it shows of the host's configuration refuses the session."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator

from recorder.stream.observation import Init, Observation

# Where a server comes from that no file of a workspace declares, whatever its name is.
FOREIGN_SOURCES = frozenset({"user", "plugin"})

NO_INIT = (
    "the stream holds no init line, so nothing states what the session loaded; "
    "see what the harness said on stderr"
)


def init_faults(
    init: Init | None,
    *,
    declared_servers: frozenset[str],
    host_skills: frozenset[str],
    configuration_directory: str,
) -> tuple[str, ...]:
    """One line a reason to refuse the session (12); none where the line shows nothing foreign.

    ``declared_servers`` are the names that the workspace's ``.mcp.json`` declared *before* the
    session, ``host_skills`` the skill directories of the host.
    """
    if init is None:
        return (NO_INIT,)
    return tuple(
        f"the init line (line {init.line}) shows {fault}"
        for fault in _faults(init, declared_servers, host_skills, configuration_directory)
    )


def all_init_faults(
    observation: Observation,
    *,
    declared_servers: frozenset[str],
    host_skills: frozenset[str],
    configuration_directory: str,
) -> tuple[str, ...]:
    """The reasons of every init line of the stream, each once: a session can print several."""
    inits: tuple[Init | None, ...] = observation.inits or (None,)
    reasons = (
        reason
        for init in inits
        for reason in init_faults(
            init,
            declared_servers=declared_servers,
            host_skills=host_skills,
            configuration_directory=configuration_directory,
        )
    )
    return tuple(dict.fromkeys(reasons))


def _faults(
    init: Init, declared: frozenset[str], host_skills: frozenset[str], directory: str
) -> Iterator[str]:
    if init.unreadable is not None:
        yield f"a shape that cannot be read ({init.unreadable}): this version is not known"
    if init.permission_mode == "bypassPermissions":
        yield "the permission mode bypassPermissions: sessions run under dontAsk"
    for plugin in init.plugins:
        if plugin.path != "builtin":
            where = "no path" if plugin.path is None else f"the path {_line(plugin.path)}"
            yield f"the plugin {_line(plugin.name)} with {where}, which is not builtin"
    for server in init.servers:
        if server.name not in declared or server.source in FOREIGN_SOURCES:
            yield (
                f"the MCP server {_line(server.name)} (source {_line(server.source or 'unknown')})"
                ", which the workspace's .mcp.json does not declare"
            )
    for skill in init.skills:
        if ":" in skill:
            yield f"the skill {_line(skill)}, which carries a plugin's namespace"
        elif skill in host_skills:
            yield f"the skill {_line(skill)}, which is a skill directory of the host"
    for path in init.memory_paths:
        if not _inside(path, directory):
            yield (
                f"the memory path {_line(path)}, which lies outside the configuration "
                f"directory {directory}"
            )
    if init.served_by_anthropic is False:
        yield "served_by_anthropic false: the session was routed to another API host"


def _inside(path: str, directory: str) -> bool:
    if not path.startswith("/"):
        return False
    normal, root = posixpath.normpath(path), posixpath.normpath(directory)
    return normal == root or normal.startswith(root.rstrip("/") + "/")


def _line(value: str) -> str:
    """A name of the session's as part of one line."""
    return value if value.isprintable() and value else json.dumps(value)
