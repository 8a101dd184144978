"""A batch as one Inspect log (``.eval``), made and written by inspect-ai's own API.

A sample a session: its id is ``tier/arm/probe`` and its epoch the repetition. An assistant's
message has calls and no words, a tool's message the digest of the document that the call named.
inspect-ai is an extra of the project (``inspect``): it brings 80 packages, 300 MB.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from recorder import __version__
from recorder.export.junit import rule
from recorder.export.reading import Exported, started_at
from recorder.export.trajectory import iso
from recorder.refusal import ExitCode, Refusal

# What a sample's score is called: the answer that the session gave.
SCORE = "answer"
NO_ANSWER = "no declared answer"


def require_inspect() -> None:
    """Refusal 3 where inspect-ai is not installed."""
    try:
        import inspect_ai  # noqa: F401
    except ImportError as error:
        raise Refusal(
            ExitCode.MISSING,
            "inspect-ai is not installed, and it writes this format: "
            f"{sys.executable} -m pip install inspect-ai",
        ) from error


def write_inspect_log(
    title: str, sessions: Sequence[Exported], repetitions: Mapping[str, int], path: Path
) -> None:
    """Write the log of sessions that have their end. ``repetitions`` by a session's name, from 1.

    Refusal 3 where inspect-ai is not installed.
    """
    require_inspect()
    from inspect_ai.log import (
        EvalConfig,
        EvalDataset,
        EvalLog,
        EvalResults,
        EvalSpec,
        EvalStats,
        write_eval_log,
    )

    starts = [at for session in sessions if (at := started_at(session)) is not None]
    models = sorted({session.model for session in sessions if session.model})
    samples = [_sample(session, repetitions.get(session.name, 1)) for session in sessions]
    created = iso(min(starts, default=0.0)) or ""
    completed = iso(max((_end(session) or 0.0 for session in sessions), default=0.0)) or ""
    log = EvalLog(
        status="success",
        eval=EvalSpec(
            created=created,
            task=title,
            eval_id=title,
            run_id=title,
            task_id=title,
            dataset=EvalDataset(
                name=title,
                samples=len(samples),
                sample_ids=[str(name) for name in dict.fromkeys(each.id for each in samples)],
            ),
            model=models[0] if models else "none",
            config=EvalConfig(epochs=max(repetitions.values(), default=1)),
            packages={"recorder": __version__},
            metadata={
                "rehearsal": any(session.evidence.rehearsal for session in sessions),
                "models": models,
            },
        ),
        stats=EvalStats(started_at=created, completed_at=completed),
        results=EvalResults(
            total_samples=len(samples),
            completed_samples=sum(session.event is not None for session in sessions),
        ),
        samples=samples,
    )
    write_eval_log(log, str(path), format="eval")


def _sample(session: Exported, repetition: int) -> Any:
    from inspect_ai.log import EvalError, EvalSample, EvalSampleLimit
    from inspect_ai.model import ModelOutput, ModelUsage
    from inspect_ai.scorer import Score

    evidence = session.evidence
    refusal = evidence.refusal
    tokens = session.tokens
    model = session.model or "none"
    usage = ModelUsage(
        input_tokens=tokens["input_tokens"],
        output_tokens=tokens["output_tokens"],
        total_tokens=sum(tokens.values()),
        input_tokens_cache_write=tokens["cache_creation_input_tokens"],
        input_tokens_cache_read=tokens["cache_read_input_tokens"],
        total_cost=session.dollars,
    )
    seconds = evidence.seconds.get("session")
    return EvalSample(
        id=f"{evidence.tier}/{evidence.arm}/{evidence.probe}",
        epoch=repetition,
        input=session.task,
        target="",
        messages=list(_messages(session)),
        output=ModelOutput(model=model),
        scores={SCORE: Score(value=session.answer or NO_ANSWER)}
        if session.event is not None
        else None,
        metadata=_metadata(session),
        model_usage={model: usage} if any(tokens.values()) else {},
        started_at=iso(started_at(session)),
        completed_at=iso(_end(session)),
        total_time=seconds,
        working_time=seconds,
        uuid=evidence.session,
        error=None
        if refusal is None
        else EvalError(
            message="; ".join((rule(refusal.code), *refusal.reasons)),
            traceback="",
            traceback_ansi="",
        ),
        limit=EvalSampleLimit(type="turn", limit=float(evidence.max_turns))
        if evidence.capped and evidence.max_turns is not None
        else None,
    )


def _messages(session: Exported) -> Iterator[Any]:
    from inspect_ai.model import ChatMessageAssistant, ChatMessageTool, ChatMessageUser
    from inspect_ai.tool import ToolCall, ToolCallError

    yield ChatMessageUser(id=f"{session.name}-task", content=session.task)
    for number, turn in enumerate(session.turns, start=1):
        yield ChatMessageAssistant(
            id=f"{session.name}-{number}",
            content="",
            model=turn.model,
            source="generate",
            metadata={"request": turn.request, "subagent_of": turn.thread or None},
            tool_calls=[
                ToolCall(
                    id=each.call.id,
                    function=each.call.tool,
                    arguments={"argument": each.call.argument},
                )
                for each in turn.calls
            ]
            or None,
        )
        for each in turn.calls:
            yield ChatMessageTool(
                id=f"{session.name}-{each.call.id}",
                content=each.result,
                tool_call_id=each.call.id,
                function=each.call.tool,
                error=ToolCallError("unknown", "") if each.call.failed else None,
            )


def _metadata(session: Exported) -> dict[str, Any]:
    evidence, event = session.evidence, session.event
    return {
        "session": evidence.session,
        "probe": evidence.probe,
        "tier": evidence.tier,
        "arm": evidence.arm,
        "rehearsal": evidence.rehearsal,
        "capped": evidence.capped,
        "identity": None if session.identity is None else msgspec.to_builtins(session.identity),
        "produced": None
        if event is None or event.produced is msgspec.UNSET
        else msgspec.to_builtins(event.produced),
    }


def _end(session: Exported) -> float | None:
    start, seconds = started_at(session), session.evidence.seconds.get("session")
    return None if start is None or seconds is None else start + seconds
