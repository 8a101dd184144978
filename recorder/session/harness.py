"""What the harness is told: its command line and its environment. Pure.

Source: the recorder contract, "The configuration the session runs under". Every arm gets one
list of tools and one environment; only what the caller names differs.
"""

from __future__ import annotations

from collections.abc import Sequence

HARNESS = "/opt/harness/claude"
WORKSPACE = "/workspace"
CONFIGURATION_DIRECTORY = "/session/config"
LOG_DIRECTORY = "/session/log"
CERTIFICATE = "/etc/recorder/ca.pem"
PROXY_PORT = 3128
PROXY_URL = f"http://127.0.0.1:{PROXY_PORT}"

# Starts with what the harness takes for an API key; the sidecar puts the real one in its place.
PLACEHOLDER_KEY = "sk-ant-api03-placeholder-of-the-recorder-0000000000"

# One argument of a command line holds at most 128 KiB on Linux (MAX_ARG_STRLEN), its end included.
TASK_LIMIT = 131_071

ALLOWED_TOOLS = (
    "Agent",
    "Bash",
    "BashOutput",
    "Edit",
    "EnterWorktree",
    "ExitWorktree",
    "Glob",
    "Grep",
    "KillShell",
    "ListAgents",
    "LS",
    "Monitor",
    "MultiEdit",
    "NotebookEdit",
    "NotebookRead",
    "Read",
    "ReportFindings",
    "SendMessage",
    "Skill",
    "Task",
    "TaskCreate",
    "TaskGet",
    "TaskList",
    "TaskOutput",
    "TaskStop",
    "TaskUpdate",
    "TodoWrite",
    "ToolSearch",
    "Write",
)
DISALLOWED_TOOLS = ("WebSearch", "WebFetch")


def command_line(
    task: str,
    *,
    servers: Sequence[str] = (),
    mcp_configuration: str | None = None,
    model: str | None = None,
    max_turns: int | None = None,
) -> tuple[str, ...]:
    """The harness's argv. ``servers``: names of MCP servers that the corpus declares.

    Options that take several values would swallow the task, so a flag that is always there
    follows each of them.
    """
    allowed = ",".join((*ALLOWED_TOOLS, *(f"mcp__{name}" for name in sorted(servers))))
    argv = [HARNESS, "-p", "--output-format", "stream-json", "--verbose", "--include-hook-events"]
    argv += ["--setting-sources", "project,local", "--permission-mode", "dontAsk"]
    argv += ["--allowedTools", allowed, "--disallowedTools", ",".join(DISALLOWED_TOOLS)]
    if mcp_configuration is not None:
        argv += ["--mcp-config", mcp_configuration]
    argv += ["--strict-mcp-config"]
    if model is not None:
        argv += ["--model", model]
    if max_turns is not None:
        argv += ["--max-turns", str(max_turns)]
    return (*argv, "--", task)


def environment(placeholder: str = PLACEHOLDER_KEY) -> dict[str, str]:
    """The whole environment of the harness. Nothing of the host's is in it."""
    return {
        "ANTHROPIC_API_KEY": placeholder,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CONFIG_DIR": CONFIGURATION_DIRECTORY,
        "DISABLE_AUTOUPDATER": "1",
        "HOME": CONFIGURATION_DIRECTORY,
        "HTTPS_PROXY": PROXY_URL,
        "HTTP_PROXY": PROXY_URL,
        "LANG": "C.UTF-8",
        "NODE_EXTRA_CA_CERTS": CERTIFICATE,
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "RECORDER_LOG_DIR": LOG_DIRECTORY,
        "SHELL": "/bin/bash",
        "SSL_CERT_FILE": CERTIFICATE,
        "TERM": "dumb",
        "TZ": "UTC",
        "USER": "session",
        "https_proxy": PROXY_URL,
        "http_proxy": PROXY_URL,
    }
