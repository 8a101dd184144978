"""Hooks that change what a call does, or what is told of it, by what they print."""

from __future__ import annotations

import json

import pytest

from recorder.evidence.corroboration_stream import StreamWitness, stream_witness

CALL = {"hookSpecificOutput": {"updatedInput": {"command": "ls"}}}
ESCAPED = json.dumps(CALL).replace("updatedInput", r"updated\u0049nput")
PERMISSION = {"hookSpecificOutput": {"decision": {"behavior": "allow", "updatedInput": {}}}}


def witness(event: str, printed: str, member: str = "stdout") -> StreamWitness:
    line = {"type": "system", "subtype": "hook_response", "hook_event": event, member: printed}
    return stream_witness([json.dumps(line).encode()])


@pytest.mark.parametrize(
    ("event", "printed"),
    [
        ("PreToolUse", json.dumps(CALL)),
        ("PreToolUse", json.dumps(CALL, indent=2) + "\n"),
        ("PreToolUse", ESCAPED),
        ("PreToolUse", f"a line before it\n{ESCAPED}"),
        ("PreToolUse", '{"a":' * 100_000 + ESCAPED + "}" * 100_000),
        ("PermissionRequest", json.dumps(PERMISSION)),
    ],
)
def test_a_hook_that_changes_a_call_is_counted(event: str, printed: str) -> None:
    for member in ("stdout", "output"):
        found = witness(event, printed, member)
        assert (found.hooks_that_changed_a_call, found.hooks_that_changed_a_result) == (1, 0)


@pytest.mark.parametrize("key", ["updatedToolOutput", "updatedMCPToolOutput"])
def test_a_hook_that_replaces_a_result_is_counted(key: str) -> None:
    printed = json.dumps({"hookSpecificOutput": {key: "done"}})
    printed = printed.replace('Output"', r'\u004futput"')
    found = witness("PostToolUse", printed)
    assert (found.hooks_that_changed_a_call, found.hooks_that_changed_a_result) == (0, 1)


@pytest.mark.parametrize(
    ("event", "printed"),
    [
        ("PreToolUse", json.dumps({"reason": 'its "updatedInput" is none'})),
        ("PreToolUse", ""),
        ("PostToolUse", json.dumps({"additionalContext": "updatedToolOutput"})),
        ("Stop", json.dumps(CALL)),
    ],
)
def test_a_hook_that_changes_nothing_is_not(event: str, printed: str) -> None:
    found = witness(event, printed)
    assert (found.hooks_that_changed_a_call, found.hooks_that_changed_a_result) == (0, 0)
