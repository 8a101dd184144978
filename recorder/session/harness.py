"""What the harness is told: its command line and its environment. Pure.

Source: the recorder contract, "The configuration the session runs under". Every arm gets one
list of tools and one environment; only what the caller names differs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

HARNESS = "/opt/harness/claude"
WORKSPACE = "/workspace"
CONFIGURATION_DIRECTORY = "/session/config"
LOG_DIRECTORY = "/session/log"
CERTIFICATE = "/etc/recorder/ca.pem"
PROXY_PORT = 3128
PROXY_URL = f"http://127.0.0.1:{PROXY_PORT}"

# Starts with what the harness takes for an API key; the sidecar puts the real one in its place.
PLACEHOLDER_KEY = "sk-ant-api03-placeholder-of-the-recorder-0000000000"

# What it takes for a token of a subscription, which goes with other headers than a key does.
PLACEHOLDER_TOKEN = "sk-ant-oat01-placeholder-of-the-recorder-0000000000"  # noqa: S105
PLACEHOLDER_REFRESH = "sk-ant-ort01-placeholder-of-the-recorder-0000000000"

# How a session holds its credential, as the host does: in a variable, or in Claude's own file.
# What the harness asks and says follows from it (an OAuth session names no API key in its init
# line and sends another beta), so a session is given the form that the host has.
Form = Literal["api-key", "bearer", "oauth-token", "file"]
CREDENTIAL_VARIABLES = {
    "ANTHROPIC_API_KEY": "api-key",
    "ANTHROPIC_AUTH_TOKEN": "bearer",
    "CLAUDE_CODE_OAUTH_TOKEN": "oauth-token",
}

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


def environment(placeholder: str = PLACEHOLDER_KEY, form: Form = "api-key") -> dict[str, str]:
    """The whole environment of the harness. Nothing of the host's is in it."""
    return {
        **{name: placeholder for name, own in CREDENTIAL_VARIABLES.items() if own == form},
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


# Variables by which a file of the workspace could turn the harness to another server, another
# account, another proxy or another trust. Claude Code reloads the project's settings in
# mid-session: with ``env.ANTHROPIC_BASE_URL`` in .claude/settings.local.json its last answer
# came from a server the session had started. An empty value is what the harness takes for unset.
UNSET_ROUTES = (
    "ALL_PROXY",
    "ANTHROPIC_API_HOST",
    "ANTHROPIC_AWS_BASE_URL",
    "ANTHROPIC_BEDROCK_BASE_URL",
    "ANTHROPIC_BEDROCK_MANTLE_BASE_URL",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ANTHROPIC_FOUNDRY_BASE_URL",
    "ANTHROPIC_GOOGLE_CLOUD_BASE_URL",
    "ANTHROPIC_UNIX_SOCKET",
    "ANTHROPIC_VERTEX_BASE_URL",
    "CLAUDE_CODE_API_BASE_URL",
    "CLAUDE_CODE_CERT_STORE",
    "CLAUDE_CODE_CLIENT_CERT",
    "CLAUDE_CODE_CLIENT_KEY",
    "CLAUDE_CODE_CUSTOM_OAUTH_URL",
    "CLAUDE_CODE_EXTRA_BODY",
    "CLAUDE_CODE_HTTPS_PROXY",
    "CLAUDE_CODE_HTTP_PROXY",
    "CLAUDE_CODE_PROXY_HOST",
    "CLAUDE_CODE_PROXY_URL",
    "NO_PROXY",
    "SSL_CERT_DIR",
    "all_proxy",
    "grpc_proxy",
    "no_proxy",
)
OFF_ROUTES = (
    "CLAUDE_CODE_USE_ANTHROPIC_AWS",
    "CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_GATEWAY",
    "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_VERTEX",
)

# Variables by which a file of the workspace could make the harness or its runtime print other
# things into the recorded stream, or tell others of the session.
UNSET_OUTPUT = (
    "ANTHROPIC_LOG",
    "BUN_CONFIG_VERBOSE_FETCH",
    "DEBUG",
    "NODE_DEBUG",
    "OTEL_LOGS_EXPORTER",
    "OTEL_LOG_LEVEL",
    "OTEL_METRICS_EXPORTER",
    "OTEL_TRACES_EXPORTER",
)
OFF_OUTPUT = ("CLAUDE_CODE_ENABLE_TELEMETRY",)
MANAGED_SETTINGS = "/etc/claude-code/managed-settings.json"


def pinned_routes(placeholder: str = PLACEHOLDER_KEY, form: Form = "api-key") -> dict[str, str]:
    """Every variable that decides where the harness goes and what else than its stream it prints
    or tells, at the one value it may have."""
    return {
        **{name: placeholder if own == form else "" for name, own in CREDENTIAL_VARIABLES.items()},
        "ANTHROPIC_BASE_URL": "https://api.anthropic.com",
        "HTTPS_PROXY": PROXY_URL,
        "HTTP_PROXY": PROXY_URL,
        "https_proxy": PROXY_URL,
        "http_proxy": PROXY_URL,
        "NODE_EXTRA_CA_CERTS": CERTIFICATE,
        "NODE_TLS_REJECT_UNAUTHORIZED": "1",
        "SSL_CERT_FILE": CERTIFICATE,
        **dict.fromkeys((*UNSET_ROUTES, *UNSET_OUTPUT), ""),
        **dict.fromkeys((*OFF_ROUTES, *OFF_OUTPUT), "0"),
    }


def managed_settings(placeholder: str = PLACEHOLDER_KEY, form: Form = "api-key") -> bytes:
    """The settings above the project's: the session can read them and not write them.

    The empty ``apiKeyHelper`` is what outranks one of the project's: without it a helper written
    in mid-session gave the harness another key, which the sidecar refused and the session ended.
    """
    settings = {"apiKeyHelper": "", "env": pinned_routes(placeholder, form)}
    return json.dumps(settings, indent=1, sort_keys=True).encode()


def messaging_paths(uid: int) -> tuple[str, ...]:
    """Where the harness would make the socket through which any child can put words to it.

    No setting switches it off. Where root's own files lie in its places, which the session cannot
    remove from /tmp, Claude Code 2.1.332 goes without, and subagents work as before.
    """
    return ("/tmp/cc-socks", f"/tmp/cc-socks-{uid}")  # noqa: S108
