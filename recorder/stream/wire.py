"""What the harness prints, as far as the recorder reads it. Everything else is skipped unread.

Fields that another version may shape otherwise are ``Any`` and narrowed by the reader, so that
a stream is refused only for what the contract refuses.
"""

from __future__ import annotations

from typing import Any

import msgspec


class WireBlock(msgspec.Struct, gc=False):
    """A content block: its tag, and of a tool call its id, name and input, still unread."""

    type: Any = None
    id: Any = None
    name: Any = None
    tool_use_id: Any = None
    is_error: Any = None
    input: msgspec.Raw = msgspec.Raw()


class WireMessage(msgspec.Struct):
    id: Any = None
    model: Any = None
    content: list[WireBlock] | str | None = None


class WireLine(msgspec.Struct):
    """Any line. ``message`` is a string in some system lines."""

    type: str | None = None
    subtype: str | None = None
    hook_event: Any = None
    parent_tool_use_id: Any = None
    message: WireMessage | str | None = None


class WireEnvelope(msgspec.Struct):
    """The line's kind alone, for a line of another shape."""

    type: Any = None
    subtype: Any = None


class WirePaths(msgspec.Struct):
    """The members of a tool's input that name a document."""

    file_path: Any = None
    path: Any = None
    notebook_path: Any = None


class WirePlugin(msgspec.Struct):
    name: str = ""
    path: str | None = None


class WireServer(msgspec.Struct):
    name: str
    source: str | None = None


class WireInit(msgspec.Struct, rename="camel"):
    """The init line. Its lists are typed: one that cannot be read must not pass for empty."""

    cwd: str | None = None
    model: str | None = None
    permission_mode: str | None = None
    skills: list[str] | None = None
    plugins: list[WirePlugin] | None = None
    mcp_servers: list[WireServer] | None = msgspec.field(name="mcp_servers", default=None)
    memory_paths: dict[str, str | None] | list[str] | None = msgspec.field(
        name="memory_paths", default=None
    )
    served_by_anthropic: bool | None = msgspec.field(name="served_by_anthropic", default=None)
    session_id: str | None = msgspec.field(name="session_id", default=None)
    claude_code_version: str | None = msgspec.field(name="claude_code_version", default=None)


class WireResult(msgspec.Struct):
    subtype: Any = None
    is_error: Any = None
    result: Any = None
    num_turns: Any = None
    terminal_reason: Any = None
    api_error_status: Any = None
    total_cost_usd: Any = None
    modelUsage: Any = None  # noqa: N815 - the harness's own spelling
    permission_denials: Any = None
