"""Calls and requests of one session on one axis of time. Pure.

The harness stamps the lines of its stream, the sidecar stamps the lines of its log, and both read
the same kernel's clock. A stamp of the harness is its own word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from proxy.egress import read
from recorder.evidence.corroboration_provider import GivenBlock, provider_witness
from recorder.evidence.corroboration_stream import StreamWitness, stream_witness
from recorder.report.view import CallView, Mark, RequestView
from recorder.report.visible import one_line, visible
from recorder.stream.observation import Observation


class _Stamped(msgspec.Struct, frozen=True):
    timestamp: Any = None


_STAMPED = msgspec.json.Decoder(_Stamped)


@dataclass(frozen=True)
class Stream:
    """A stream as the timeline needs it: what was shown, and when each line was stamped."""

    witness: StreamWitness
    stamps: Mapping[int, float]


@dataclass(frozen=True)
class Log:
    """An egress log as the timeline needs it. ``given``: blocks of answers by a call's id.

    None where the log does not verify or is of another version: then nothing can be joined.
    """

    lines: tuple[Mapping[str, Any], ...]
    faults: tuple[str, ...]
    given: Mapping[str, tuple[int, GivenBlock]] | None


def seconds_of(stamp: object) -> float | None:
    """A time stamp of ISO 8601 as seconds since 1970; None for what is none."""
    if not isinstance(stamp, str):
        return None
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return None


def read_stream(raw: bytes) -> Stream:
    lines = raw.split(b"\n")
    return Stream(stream_witness(lines), stamps_of(lines))


def stamps_of(lines: Iterable[bytes]) -> dict[int, float]:
    """When each line was stamped, by its number from 1, where it is."""
    stamps = {}
    for number, line in enumerate(lines, start=1):
        if b'"timestamp"' not in line:
            continue
        try:
            stamp = seconds_of(_STAMPED.decode(line).timestamp)
        except msgspec.MsgspecError:
            continue
        if stamp is not None:
            stamps[number] = stamp
    return stamps


def read_log(egress: bytes) -> Log:
    reading = read(egress.splitlines(keepends=True))
    given: dict[str, tuple[int, GivenBlock]] | None = None
    if not reading.faults:
        try:
            exchanges = provider_witness(reading.lines).exchanges
        except (KeyError, TypeError, ValueError):
            exchanges = None
        if exchanges is not None:
            given = {
                block.id: (exchange.number, block)
                for exchange in exchanges
                for block in exchange.blocks
                if block.id is not None
            }
    return Log(reading.lines, reading.faults, given)


def calls_of(
    observation: Observation,
    stream: Stream,
    log: Log | None,
    *,
    results: Sequence[str] | None,
    findings: Mapping[int, str],
    zero: float,
    argument_limit: int,
) -> tuple[CallView, ...]:
    """Every call in order. ``results`` are the record's, ``findings`` the witnesses' by line."""
    digests = {
        block.block.get("id"): block.digest
        for block in stream.witness.blocks
        if block.kind == "tool_use" and isinstance(block.block.get("id"), str)
    }
    told = {told.result: told.line for told in reversed(stream.witness.told) if told.result}
    views = []
    for number, call in enumerate(observation.calls):
        given = log.given.get(call.id) if log is not None and log.given is not None else None
        finding = findings.get(call.line, "")
        mark: Mark
        if finding:
            mark = "disagrees"
        elif given is None:
            mark = "not joined"
        else:
            mark = "given" if given[1].digest == digests.get(call.id) else "normalised"
        argument = visible(call.argument[:argument_limit])
        views.append(
            CallView(
                number=number + 1,
                at=_relative(stream.stamps.get(call.line), zero),
                end=_relative(stream.stamps.get(told.get(call.id, 0)), zero),
                tool=one_line(call.tool),
                argument=argument,
                cut=max(0, len(call.argument) - argument_limit),
                result=None if results is None else results[number],
                mark=mark,
                finding=one_line(finding),
                failed=call.failed,
                subagent=call.subagent,
                request=given[0] if given is not None else None,
            )
        )
    return tuple(views)


def requests_of(lines: Iterable[Mapping[str, Any]], zero: float) -> tuple[RequestView, ...]:
    """Every decision on something that the session tried, in the log's order."""
    lines = list(lines)
    answers = {
        line.get("request"): line
        for line in lines
        if line["kind"] == "answer" and line.get("request") is not None
    }
    views = []
    for line in lines:
        if line["kind"] != "decision":
            continue
        number = line.get("request")
        answer = answers.get(number, {}) if isinstance(number, int) else {}
        said = line.get("asked")
        asked: Mapping[str, Any] = said if isinstance(said, dict) else {}
        host = str(asked.get("host", "-"))
        place = f"{host}:{asked['port']}" if "port" in asked else host
        allowed = line.get("decision") == "allowed"
        whole = _number(answer.get("whole_ms"))
        views.append(
            RequestView(
                at=_relative(seconds_of(line.get("time")), zero),
                seconds=None if whole is None else round(whole / 1000, 4),
                host=one_line(place),
                asked=one_line(f"{asked.get('method', '')} {asked.get('path', '')}".strip()),
                outcome="allowed" if allowed else one_line(str(line.get("rule"))),
                detail=one_line(str(line.get("detail") or "")),
                request=number if isinstance(number, int) else None,
                status=_whole(answer.get("status") if allowed else line.get("status")),
                sent=_whole(answer.get("sent_bytes")),
                received=_whole(answer.get("received_bytes")),
                model=one_line(str(answer.get("model_served") or "")),
            )
        )
    return tuple(views)


def _relative(stamp: float | None, zero: float) -> float | None:
    return None if stamp is None else round(stamp - zero, 3)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
