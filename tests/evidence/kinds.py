"""The kinds of sessions on which the two witnesses must agree."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.evidence.scripted import Kind, shared_tool

# Scenarios of tests/evidence/scenarios.py.
EXTRA = (
    "direct",
    "second",
    "resumed",
    "texts",
    "agents",
    "twins",
    "trailing",
    "nested",
    "message",
    "image",
)
_FEW_RETRIES = {"CLAUDE_CODE_MAX_RETRIES": "2"}

SKILL = """\
---
name: tally
description: Adds the values of an input file.
---
Read the file named in the arguments and add its values. Arguments: $ARGUMENTS
"""


FORKED = """\
---
name: forked
description: Looks around.
context: fork
---
SUBAGENT-TASK: look around $ARGUMENTS
"""
ASKING = json.dumps(
    {"hooks": {"Stop": [{"hooks": [{"type": "prompt", "prompt": "Is it done? $ARGUMENTS"}]}]}}
)


def settings(**hooks: str) -> str:
    """A project's settings with one command a hook event; ``Event__Matcher`` names both."""
    entries: dict[str, list[object]] = {}
    for name, command in hooks.items():
        event, _, matcher = name.partition("__")
        entry: dict[str, object] = {"hooks": [{"type": "command", "command": command}]}
        if matcher:
            entry["matcher"] = matcher
        entries.setdefault(event, []).append(entry)
    return json.dumps({"hooks": entries})


BLOCK = """\
#!/usr/bin/python3
import json, sys
call = json.load(sys.stdin)
if "rm -rf" in call["tool_input"].get("command", ""):
    print("not that", file=sys.stderr)
    sys.exit(2)
"""
REWRITE = """\
#!/usr/bin/python3
import json, sys
call = json.load(sys.stdin)
turned = dict(call["tool_input"], command="echo rewritten")
print(json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse",
    "permissionDecision": "allow", "permissionDecisionReason": "ours", "updatedInput": turned}}))
"""


def _mcp_files() -> Mapping[str, str]:
    server = shared_tool("calc_mcp.py").read_text()
    return {
        "calc_mcp.py": server,
        ".mcp.json": json.dumps(
            {"mcpServers": {"calc": {"command": "python3", "args": ["/workspace/calc_mcp.py"]}}}
        ),
    }


def _kinds() -> list[Kind]:
    hooked = {
        ".claude/settings.json": settings(
            SessionStart="echo hello from the hook",
            UserPromptSubmit="echo mind the prompt",
            PreToolUse__Bash="/workspace/.claude/block.py",
            PostToolUse="true",
            Stop="true",
        ),
        ".claude/block.py": BLOCK,
    }
    rewriting = {
        ".claude/settings.json": settings(PreToolUse__Bash="/workspace/.claude/rewrite.py"),
        ".claude/rewrite.py": REWRITE,
    }
    plain = [
        "basic",
        "final_only",
        "thinking",
        "parallel",
        "subagent",
        "subagentbg",
        "todo",
        "taskcreate",
        "denied",
        "badtool",
        "bypass",
        "bgbash",
        "max_tokens",
        "max_tokens_once",
        "refusal",
        "pause_turn",
        "empty",
        "longtext",
        "ratelimit_ok",
        "ratelimit_rej",
        "ctxfull",
        "toolong",
        "toolong_once",
        "badutf8",
    ]
    kinds = [Kind(name.replace("_", "-"), name) for name in plain]
    kinds += [Kind(name, name) for name in EXTRA]
    kinds += [
        Kind("normalised", "normalised", _mcp_files(), servers=("calc",)),
        Kind("cut-text", "cuttext", environment=_FEW_RETRIES),
        Kind("cut-thought", "cutthought", environment=_FEW_RETRIES),
        Kind("over-text", "overtext", environment=_FEW_RETRIES),
        Kind("skill", "skill", {".claude/skills/tally/SKILL.md": SKILL, "CLAUDE.md": "# Rules\n"}),
        Kind("fork", "fork", {".claude/skills/forked/SKILL.md": FORKED}),
        Kind("hook-asks", "hooks", {".claude/settings.json": ASKING}),
        Kind("mcp", "mcp", _mcp_files(), servers=("calc",)),
        Kind("hooks", "hooks", hooked),
        Kind("hook-rewrites", "basic", rewriting),
        Kind("bigline", "bigline", {**_mcp_files(), "big.txt": "y" * 1_048_576}, servers=("calc",)),
        Kind("bigedit", "bigedit", {"big2.txt": "first\nneedle\n" + "x" * 1_000_000}),
        Kind("max-turns", "loop", max_turns=3),
        Kind("stall", "stall", timeout=90.0),
    ]
    for code in ("429", "529", "500", "drop0", "dropmid", "overmid"):
        for when in ("x2", "_late", "_always"):
            # Five tries with the harness's own growing waits take too long for a test.
            kinds.append(
                Kind(
                    f"err{code}{when.replace('_', '-')}",
                    f"err{code}{when}",
                    environment=_FEW_RETRIES,
                )
            )
    for code in ("400", "401", "403", "404", "credit"):
        kinds.append(Kind(f"err{code}-late", f"err{code}_late", environment=_FEW_RETRIES))
    return kinds


KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _kinds()}
