"""Scenarios beside the shared script's own, for what a session can do against its recording."""

from __future__ import annotations

from pathlib import Path

from recorder.session.harness import CERTIFICATE, HARNESS, PLACEHOLDER_KEY
from tests.evidence.scripted import shared_tool

# A child of the session asks the provider itself, with what every process of a session has.
DIRECT_CALL = (
    f"curl -sS --cacert {CERTIFICATE} https://api.anthropic.com/v1/messages "
    f"-H 'x-api-key: {PLACEHOLDER_KEY}' -H 'anthropic-version: 2023-06-01' "
    "-H 'content-type: application/json' -d "
    '\'{"model":"claude-sonnet-4-5","max_tokens":100,'
    '"messages":[{"role":"user","content":"Say 42"}]}\''
)
SECOND_HARNESS = (
    f"{HARNESS} -p 'SUBAGENT-TASK of another harness' --model claude-sonnet-4-5 "
    "--output-format stream-json --verbose </dev/null >second.jsonl 2>&1; tail -c 300 second.jsonl"
)

# Writes a picture of 64 by 64 points, which the harness tells as a picture.
PICTURE = """python3 -I -c '
import struct, zlib
def part(kind, data):
    check = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + check
head = struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0)
rows = zlib.compress((b"\\0" + b"\\x7f" * 192) * 64)
with open("a.png", "wb") as file:
    file.write(b"\\x89PNG\\r\\n\\x1a\\n" + part(b"IHDR", head) + part(b"IDAT", rows))
    file.write(part(b"IEND", b""))
'"""

_EXTRA = """
def N(tool, **members):
    return {{"blocks": [{{"type": "tool_use", "name": tool, "input": members}}]}}


SCENARIOS["direct"] = [N("Bash", command={direct!r}), DONE]
SCENARIOS["second"] = [N("Bash", command={second!r}), DONE]
SCENARIOS["second__child"] = [{{"blocks": [T("The other harness says 42.")]}}]
SCENARIOS["cuttext"] = [READ, dict(DONE, fail=["dropmid*"]), DONE]
SCENARIOS["overtext"] = [READ, dict(DONE, fail=["overmid*"]), DONE]
SCENARIOS["cutthought"] = [
    {{"blocks": [TH("A thought that is whole."), T("A text that is cut in the middle of it.")],
      "fail": ["dropmid*"]}},
    DONE,
]
SCENARIOS["resumed"] = [
    {{"blocks": [TH("a long thought"), U("Bash", command="ls")]}},
    {{"blocks": [TH("b"), U("Read", file_path="{{CWD}}/input.txt"), U("Bash", command="pwd")]}},
    {{"blocks": [TH("c"), {{"type": "redacted_thinking", "data": "cmVk"}}, T("ANSWER: 42")]}},
]
SCENARIOS["texts"] = [
    {{"blocks": [T("first"), T("second"), U("Bash", command="ls"), T("after"), T(" ")]}},
    {{"blocks": [T("a"), T("ANSWER: b")]}},
]
SCENARIOS["agents"] = [
    {{"blocks": [T("two"),
      U("Agent", description="A", prompt="SUBAGENT-TASK: one", subagent_type="general-purpose",
        run_in_background=False),
      U("Agent", description="B", prompt="SUBAGENT-TASK: two", subagent_type="Explore",
        run_in_background=False)]}},
    {{"blocks": [T("ANSWER: 3")]}},
]
SCENARIOS["agents__child"] = [
    {{"blocks": [TH("hm"), T("Counting."), U("Bash", command="wc -l input.txt")]}},
    {{"blocks": [T("3 lines")]}},
]
SCENARIOS["twins"] = [
    {{"blocks": [
      U("Agent", description="A", prompt="SUBAGENT-TASK: long", subagent_type="general-purpose"),
      U("Agent", description="B", prompt="SUBAGENT-TASK: long", subagent_type="general-purpose")]}},
    {{"blocks": [U("Bash", command="sleep 1")]}},
    {{"blocks": [T("waiting")]}},
    {{"blocks": [T("ANSWER: 1")]}},
]
SCENARIOS["twins__child"] = [
    {{"blocks": [U("Bash", command="sleep 1; echo a")]}},
    {{"blocks": [TH("h"), T("x"), U("Bash", command="echo b")]}},
    {{"blocks": [T("child says done")]}},
]
SCENARIOS["normalised"] = [
    N("Bash", command="cd /workspace && ls -1", description="x", timeout="5000"),
    N("Bash", command="printf 'a'", timeout=5000.0),
    N("Read", file_path="input.txt", offset=1.0),
    N("Write", file_path="rel/a.txt", content="a  \\nb\\t\\n\\n  "),
    N("Edit", file_path="/workspace/input.txt", old_string="alpha = 30",
      new_string="alpha = 31 \\n", replace_all="true"),
    N("ToolSearch", query="select:TaskCreate,NotebookEdit"),
    N("TaskCreate", subject="s", description="d"),
    N("mcp__calc__add", a=1.0, b=12345678901234567890),
    N("mcp__calc__add", a="30", b=1e-7),
    {{"blocks": [{{"type": "tool_use", "name": "Bash", "input": {{}}, "raw_input": ""}}]}},
    {{"blocks": [{{"type": "tool_use", "name": "Bash", "input": {{}}, "raw_input": '["x"]'}}]}},
    {{"blocks": [T("  ANSWER: 42  \\n")]}},
]
SCENARIOS["trailing"] = [
    {{"blocks": [T("first  \\n"), U("Bash", command="ls")]}},
    {{"blocks": [T("cut here \\n ")], "stop": "max_tokens", "out": 10}},
    {{"blocks": [T(" lead"), U("Bash", command="pwd")]}},
    {{"blocks": [TH("only a thought")]}},
    {{"blocks": [T("ANSWER: 42")]}},
]
SCENARIOS["nested"] = [
    {{"blocks": [U("Agent", description="A", prompt="SUBAGENT-TASK: outer",
      subagent_type="general-purpose", run_in_background=False)]}},
    {{"blocks": [T("ANSWER: 1")]}},
]
SCENARIOS["nested__child"] = [
    {{"blocks": [T("deeper"), U("Agent", description="N", prompt="SUBAGENT-TASK: inner",
      subagent_type="general-purpose", run_in_background=False)]}},
    {{"blocks": [T("back")]}},
]
SCENARIOS["message"] = [
    {{"blocks": [{{"type": "tool_use", "name": "Agent", "input": {{"description": "A",
      "prompt": "SUBAGENT-TASK: outer", "subagent_type": "general-purpose", "name": "bob"}}}}]}},
    N("ToolSearch", query="select:SendMessage,Monitor"),
    N("Bash", command="sleep 2"),
    N("SendMessage", to="bob", summary="more work please", message="SUBAGENT-TASK: again"),
    N("Bash", command="sleep 2"),
    DONE,
]
SCENARIOS["message__child"] = [
    N("Bash", command="ls"),
    {{"blocks": [T("first done")]}},
    N("Bash", command="pwd"),
    {{"blocks": [T("second done")]}},
]
SCENARIOS["fork"] = [N("Skill", skill="forked", args="x"), N("Bash", command="ls"), DONE]
SCENARIOS["fork__child"] = [N("Bash", command="ls"), {{"blocks": [T("looked around")]}}]
SCENARIOS["image"] = [
    N("Bash", command={picture!r}), N("Read", file_path="{{CWD}}/a.png"), N("Bash", command="ls"),
    DONE,
]


"""


def extended_script() -> str:
    """The shared script with these scenarios in it."""
    script: Path = shared_tool("scripted_provider.py")
    text = script.read_text("utf-8")
    before, main, after = text.partition("def main():")
    extra = _EXTRA.format(direct=DIRECT_CALL, second=SECOND_HARNESS, picture=PICTURE)
    return before + extra + main + after
