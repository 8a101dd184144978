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


"""


def extended_script() -> str:
    """The shared script with these scenarios in it."""
    script: Path = shared_tool("scripted_provider.py")
    text = script.read_text("utf-8")
    before, main, after = text.partition("def main():")
    extra = _EXTRA.format(direct=DIRECT_CALL, second=SECOND_HARNESS)
    return before + extra + main + after
