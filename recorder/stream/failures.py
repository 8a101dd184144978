"""What a stream says of the request that ended its session. Pure.

**Measured** with Claude Code 2.1.332 against a scripted provider. The last answer of such a session
is an ``assistant`` line of the model ``<synthetic>`` with ``is_api_error_message`` and the members
below, and its result line is an error with ``terminal_reason`` ``api_error``. A usage limit is told
without a retry: ``api_error`` is ``usage_limit_reached`` and ``api_error_params`` holds the time at
which it resets, in seconds since 1970; the text tells it to the hour alone, so no text is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from recorder.stream.lines import split_lines

TIME_LIMIT = 253_402_300_800
"""The year 10000: no time of a limit, and milliseconds where seconds are meant are above it."""
API_ERROR = "api_error"
RETRY = "api_retry"


@dataclass(frozen=True, slots=True)
class Failure:
    """``status`` is the HTTP status that the harness was answered, None where no answer came.

    ``error`` is the harness's own word for the family (``rate_limit``, ``billing_error``),
    ``cause`` its word for what it knows better (``usage_limit_reached``, ``connection_failed``).
    ``resets_at`` is in seconds since 1970. ``retries``: how often it said that it asks again.
    """

    status: int | None
    error: str | None
    cause: str | None
    resets_at: float | None
    retries: int


class _Line(msgspec.Struct):
    type: Any = None
    subtype: Any = None
    is_error: Any = None
    terminal_reason: Any = None
    is_api_error_message: Any = None
    error: Any = None
    api_error: Any = None
    api_error_status: Any = None
    api_error_params: Any = None


_DECODER = msgspec.json.Decoder(_Line)


def failure_of(chunks: Iterable[bytes]) -> Failure | None:
    """The failure that ended a session; None where no request that failed did."""
    told: _Line | None = None
    ended: _Line | None = None
    retries = 0
    for line, _ in split_lines(chunks):
        try:
            read = _DECODER.decode(line)
        except msgspec.DecodeError:
            # A line that cannot be read is judged elsewhere, and says nothing of a request.
            continue
        if read.type == "assistant" and read.is_api_error_message is True:
            told = read
        elif read.type == "system" and read.subtype == RETRY:
            retries += 1
        elif read.type == "result":
            ended = read
    if ended is None or ended.is_error is not True or ended.terminal_reason != API_ERROR:
        return None
    told = told or _Line()
    return Failure(
        status=_whole(ended.api_error_status),
        error=_text(told.error),
        cause=_text(ended.api_error) or _text(told.api_error),
        resets_at=_resets_at(told.api_error_params),
        retries=retries,
    )


def _resets_at(parameters: Any) -> float | None:
    limit = parameters.get("rate_limit_info") if isinstance(parameters, dict) else None
    seconds = limit.get("resetsAt") if isinstance(limit, dict) else None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    return float(seconds) if 0 < seconds < TIME_LIMIT else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
