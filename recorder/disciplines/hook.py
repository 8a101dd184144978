"""A PreToolUse call of Claude Code as one observation, from its payload and the disk.

The payload is the harness's own; ``tool_input`` is the agent's text and never says who acts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recorder.disciplines.edits import EDIT_TOOLS, edited_path, edited_text
from recorder.disciplines.history import SHELL_TOOL, milliseconds
from recorder.disciplines.judging import World
from recorder.disciplines.replay import BINARY, relative_to, side, state_of
from recorder.disciplines.shell import shell_evidence
from recorder.disciplines.values import ABSENT, UNPROVEN, Snapshot, parse_json
from recorder.plain_file import read_plain

EVENT = "PreToolUse"


class PayloadError(ValueError):
    """A payload that cannot be classified; the text says why."""


@dataclass(frozen=True)
class Payload:
    """What the harness says of a call before it runs. ``root`` is the repository, absolute."""

    tool: str
    arguments: Mapping[str, Any]
    root: str
    directory: str
    agent_type: str | None
    call: str | None
    transcript: Path | None


def read_payload(text: str, root: Path | None = None) -> Payload:
    """Read a payload; ``root`` is the repository where it is not the payload's ``cwd``."""
    try:
        read = parse_json(text)
    except ValueError as error:
        raise PayloadError(f"is not JSON: {error}") from error
    if not isinstance(read, dict):
        raise PayloadError("is not a JSON object")
    if read.get("hook_event_name", EVENT) != EVENT:
        raise PayloadError(f"is of {read['hook_event_name']!r} and not of {EVENT}")
    tool, arguments, directory = read.get("tool_name"), read.get("tool_input"), read.get("cwd")
    if not isinstance(tool, str) or not tool:
        raise PayloadError("names no tool")
    if not isinstance(arguments, dict):
        raise PayloadError(f"has no tool_input of {tool}")
    if not isinstance(directory, str) or not directory.startswith("/"):
        raise PayloadError("has no absolute cwd")
    if tool in EDIT_TOOLS and edited_path(tool, arguments) is None:
        raise PayloadError(f"names no file that {tool} would edit")
    if tool == SHELL_TOOL and not isinstance(arguments.get("command"), str):
        raise PayloadError(f"has no command of {tool}")
    agent = read.get("agent_type")
    if agent is not None and not isinstance(agent, str):
        raise PayloadError("has an agent_type that is not text")
    transcript, call = read.get("transcript_path"), read.get("tool_use_id")
    return Payload(
        tool,
        arguments,
        str(root.resolve()) if root is not None else directory,
        directory,
        agent or None,
        call if isinstance(call, str) else None,
        Path(transcript) if isinstance(transcript, str) and transcript else None,
    )


def worlds_of(payload: Payload, now_ms: int) -> tuple[World, ...]:
    """The call's worlds: one a file that it would change, or one of a shell line alone."""
    lines = _transcript(payload.transcript)
    world = World(
        actor={} if payload.agent_type is None else {"agentType": payload.agent_type},
        command=payload.arguments["command"] if payload.tool == SHELL_TOOL else ABSENT,
        file=lambda path: side(_on_disk(payload.root, path)),
        sidecar=_spawns(payload.transcript),
        transcript=ABSENT if lines is None else _snapshot(lines, payload.call, now_ms),
    )
    worlds = tuple(_file_worlds(payload, world))
    if not worlds and payload.tool == SHELL_TOOL:
        return (world,)
    return worlds


def _file_worlds(payload: Payload, world: World) -> Iterator[World]:
    posts: dict[str, Any] = {}
    if payload.tool in EDIT_TOOLS:
        named = edited_path(payload.tool, payload.arguments) or ""
        path = relative_to(payload.root, _joined(payload.directory, named))
        if path is not None:
            pre = _on_disk(payload.root, path)
            text = edited_text(
                payload.tool, payload.arguments, pre if isinstance(pre, str) else None
            )
            proven = payload.tool == "Write" or isinstance(pre, str) or pre is ABSENT
            posts[path] = text if text is not None and proven else UNPROVEN
    elif payload.tool == SHELL_TOOL:
        evidence = shell_evidence(payload.arguments["command"])
        for write in evidence.writes:
            path = relative_to(payload.root, _joined(payload.directory, write.path))
            if path is None:
                continue
            pre = posts.get(path, _on_disk(payload.root, path))
            if write.mode == "truncate" or pre is ABSENT:
                posts[path] = write.content
            else:
                posts[path] = pre + write.content if isinstance(pre, str) else UNPROVEN
        for unknown in evidence.unknown:
            path = (
                None
                if unknown.path is None
                else relative_to(payload.root, _joined(payload.directory, unknown.path))
            )
            if path is not None:
                posts[path] = UNPROVEN
    for path, post in posts.items():
        yield World(
            subject=path,
            path=path,
            pre=side(_on_disk(payload.root, path)),
            post=post,
            changes=UNPROVEN,
            command=world.command,
            actor=world.actor,
            file=world.file,
            sidecar=world.sidecar,
            transcript=world.transcript,
        )


def _joined(directory: str, path: str) -> str:
    return path if path.startswith("/") else f"{directory}/{path}"


def _on_disk(root: str, path: str) -> Any:
    """A file's state. One that is there and cannot be read is unproven."""
    full = Path(root) / path
    try:
        if not full.exists():
            return ABSENT
        return state_of(full.read_bytes()) if full.is_file() else BINARY
    except (OSError, ValueError):
        return UNPROVEN


def _transcript(path: Path | None) -> list[Any] | None:
    """The session's own log as JSON values; None where there is none to read."""
    if path is None:
        return None
    try:
        text = read_plain(path.resolve()).decode("utf-8", "replace")
    except (OSError, ValueError):
        # No file has that name, or what has it is none that ends.
        return None
    found = []
    for line in text.split("\n"):
        if line.strip():
            try:
                found.append(parse_json(line))
            except ValueError:
                # The line that is being written now.
                continue
    return found


def _snapshot(lines: list[Any], call: str | None, now_ms: int) -> Snapshot:
    """The history before this call. A turn that the harness made itself is no user's."""
    turns: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    results: dict[str, bool] = {}
    identifiers: list[str] = []
    ordinal = 0
    for line in lines:
        if not isinstance(line, dict) or not isinstance(line.get("message"), dict):
            continue
        content = line["message"].get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks if isinstance(blocks, list) else ():
            kind = block.get("type") if isinstance(block, dict) else None
            if line.get("type") == "assistant" and kind == "tool_use":
                if call is not None and block.get("id") == call:
                    continue
                arguments = block.get("input")
                calls.append(
                    {
                        "index": ordinal,
                        "name": block.get("name"),
                        "args": arguments if isinstance(arguments, dict) else {},
                    }
                )
                identifiers.append(str(block.get("id")))
                ordinal += 1
            elif line.get("type") == "user" and kind == "tool_result":
                good = block.get("is_error", False) is False
                results.setdefault(str(block.get("tool_use_id")), good)
            elif line.get("type") == "user" and kind == "text" and _by_a_user(line):
                turn: dict[str, Any] = {"index": ordinal, "text": block.get("text")}
                at_ms = milliseconds(line.get("timestamp"))
                turns.append(turn if at_ms is None else {**turn, "timestampMs": at_ms})
                ordinal += 1
    for each, identifier in zip(calls, identifiers, strict=True):
        each["succeeded"] = results.get(identifier, False)
    return Snapshot({"observedAtMs": now_ms, "userMessages": turns, "toolCalls": calls})


def _by_a_user(line: Mapping[str, Any]) -> bool:
    return not any(line.get(flag) for flag in ("isMeta", "isSidechain", "isCompactSummary"))


def _spawns(transcript: Path | None) -> Any:
    """The records of subagents that the harness keeps beside the session's log, as JSON text."""
    if transcript is None or not transcript.is_file():
        return ABSENT
    records = []
    for path in sorted((transcript.parent / transcript.stem / "subagents").glob("*.meta.json")):
        try:
            records.append(parse_json(read_plain(path).decode("utf-8")))
        except (OSError, ValueError):
            return UNPROVEN
    return json.dumps(records)
