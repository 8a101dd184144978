"""A session in the Agent Trajectory Interchange Format (ATIF 1.7), one document a session. Pure.

The user's step holds the task; an agent's step is one answer of the provider, without its words:
``message`` is empty, a call has the contract's argument and its observation the digest of the
document that it named. Subagents are embedded, each referred to by the call that ran it. A member
that is None is not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import UNSET

from recorder import __version__
from recorder.export.reading import Call, Exported, Turn

SCHEMA_VERSION = "ATIF-v1.7"
AGENT = "claude-code"
NO_VERSION = "unknown"


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    tool_call_id: str
    function_name: str
    arguments: dict[str, str]


class Reference(msgspec.Struct, frozen=True, omit_defaults=True):
    trajectory_id: str


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    source_call_id: str
    content: str | None = None
    subagent_trajectory_ref: list[Reference] | None = None
    extra: dict[str, Any] | None = None


class Observation(msgspec.Struct, frozen=True, omit_defaults=True):
    results: list[Result]


class Metrics(msgspec.Struct, frozen=True, omit_defaults=True):
    """``prompt_tokens`` are all that were asked with, those of the cache among them."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    extra: dict[str, int]


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    step_id: int
    source: str
    message: str
    timestamp: str | None = None
    model_name: str | None = None
    tool_calls: list[ToolCall] | None = None
    observation: Observation | None = None
    metrics: Metrics | None = None
    llm_call_count: int | None = None
    extra: dict[str, Any] | None = None


class Agent(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    version: str
    model_name: str | None = None


class FinalMetrics(msgspec.Struct, frozen=True, omit_defaults=True):
    total_prompt_tokens: int
    total_completion_tokens: int
    total_cached_tokens: int
    total_steps: int
    total_cost_usd: float | None = None


class Trajectory(msgspec.Struct, frozen=True, omit_defaults=True):
    schema_version: str
    session_id: str
    trajectory_id: str
    agent: Agent
    steps: list[Step]
    final_metrics: FinalMetrics | None = None
    subagent_trajectories: list[Trajectory] | None = None
    extra: dict[str, Any] | None = None


def trajectory(session: Exported) -> Trajectory:
    """The trajectory of a session that recorded. Raises ValueError for one that was refused."""
    if session.event is None or session.identity is None:
        raise ValueError(f"{session.name} has no event")
    agent = Agent(
        name=AGENT,
        version=session.evidence.harness_version or NO_VERSION,
        model_name=session.identity.model,
    )
    by_thread: dict[str, list[Turn]] = {}
    for turn in session.turns:
        by_thread.setdefault(turn.thread, []).append(turn)
    threads = frozenset(by_thread) - {""}
    task = Step(step_id=1, source="user", message=session.task)
    steps = [task, *_steps(by_thread.get("", ()), 2, threads)]
    return Trajectory(
        schema_version=SCHEMA_VERSION,
        session_id=session.name,
        trajectory_id=session.name,
        agent=agent,
        steps=steps,
        final_metrics=_final(session, len(steps)),
        subagent_trajectories=[
            Trajectory(
                schema_version=SCHEMA_VERSION,
                session_id=session.name,
                trajectory_id=thread,
                agent=agent,
                steps=_steps(by_thread[thread], 1, threads),
            )
            for thread in by_thread
            if thread
        ]
        or None,
        extra=_extra(session),
    )


def trajectory_json(session: Exported) -> bytes:
    return msgspec.json.format(msgspec.json.encode(trajectory(session)), indent=2) + b"\n"


def iso(seconds: float | None) -> str | None:
    """Seconds since 1970 as ISO 8601 in UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _steps(turns: Iterable[Turn], first: int, threads: frozenset[str]) -> list[Step]:
    return [_step(number, turn, threads) for number, turn in enumerate(turns, start=first)]


def _step(number: int, turn: Turn, threads: frozenset[str]) -> Step:
    return Step(
        step_id=number,
        source="agent",
        message="",
        timestamp=iso(turn.at),
        model_name=turn.model,
        tool_calls=[
            ToolCall(
                tool_call_id=each.call.id,
                function_name=each.call.tool,
                arguments={"argument": each.call.argument},
            )
            for each in turn.calls
        ]
        or None,
        observation=Observation(results=_results(turn.calls, threads)) if turn.calls else None,
        metrics=_metrics(turn.tokens),
        llm_call_count=1,
        extra={
            name: value
            for name, value in (("request", turn.request), ("stop_reason", turn.stop_reason))
            if value is not None
        }
        or None,
    )


def _results(calls: Sequence[Call], threads: frozenset[str]) -> list[Result]:
    return [
        Result(
            source_call_id=each.call.id,
            content=each.result or None,
            subagent_trajectory_ref=[Reference(trajectory_id=each.call.id)]
            if each.call.id in threads
            else None,
            extra=None if each.call.failed is None else {"failed": each.call.failed},
        )
        for each in calls
    ]


def _prompt(tokens: Mapping[str, int]) -> int:
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return sum(tokens.get(name, 0) for name in names)


def _metrics(tokens: Mapping[str, int]) -> Metrics | None:
    if not tokens:
        return None
    return Metrics(
        prompt_tokens=_prompt(tokens),
        completion_tokens=tokens.get("output_tokens", 0),
        cached_tokens=tokens.get("cache_read_input_tokens", 0),
        extra=dict(tokens),
    )


def _final(session: Exported, steps: int) -> FinalMetrics:
    return FinalMetrics(
        total_prompt_tokens=_prompt(session.tokens),
        total_completion_tokens=session.tokens["output_tokens"],
        total_cached_tokens=session.tokens["cache_read_input_tokens"],
        total_cost_usd=session.dollars,
        total_steps=steps,
    )


def _extra(session: Exported) -> dict[str, Any]:
    """What the format has no member for: the contract's own identity, answer and artifacts."""
    event, evidence = session.event, session.evidence
    extra: dict[str, Any] = {
        "recorder": __version__,
        "rehearsal": evidence.rehearsal,
        "probe": evidence.probe,
        "capped": evidence.capped,
        "identity": msgspec.to_builtins(session.identity),
    }
    if event is not None and event.answer is not UNSET:
        extra["answer"] = event.answer
    if event is not None and event.produced is not UNSET:
        extra["produced"] = msgspec.to_builtins(event.produced)
    return extra
