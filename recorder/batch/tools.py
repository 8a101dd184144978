"""Asking the MCP servers of a line's tree for their tools, and refusing what they give away.

It needs an engine, so it comes after every refusal that needs none, and before any session.
"""

from __future__ import annotations

from collections.abc import Iterable

from recorder.batch.line import LaidLine
from recorder.engine.client import Engine
from recorder.session.leftovers import DRIVER_LABEL, driver_identity, driver_name
from recorder.session.mcp_tools import tool_lister
from recorder.workspace.leaks import ToolLister, tool_leaks


def lister_on(engine: Engine, session_image: str) -> ToolLister:
    """What lists a tree's tools in a container of this driver's."""
    labels = {DRIVER_LABEL: driver_identity()}
    return tool_lister(engine, session_image, name=driver_name(), labels=labels)


def refuse_leaking_tools(lines: Iterable[LaidLine], lister: ToolLister) -> None:
    """Refuse (9) a declared string in what a line's servers say of their tools, (8) servers that
    list none. Lines of one tree and one selection are asked for once."""
    asked: set[tuple[str, tuple[str, ...]]] = set()
    for laid in lines:
        identifiers = tuple(probe.id for probe in laid.probes)
        if (laid.manifest_text, identifiers) in asked:
            continue
        asked.add((laid.manifest_text, identifiers))
        found = tool_leaks(laid.line.tree, laid.declaration, identifiers, lister)
        found.require_none(f"the `{laid.line.arm}` arm of the `{laid.line.tier}` tier")
