"""Attempts as HAR 1.2 and as CSV, for the tools that read those. Pure.

Neither holds a body, a header or a credential: the log has none.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from recorder import __version__
from recorder.audit.attempts import Attempt

COLUMNS = (
    "session",
    "sequence",
    "time",
    "connection",
    "request",
    "layer",
    "decision",
    "rule",
    "detail",
    "host",
    "port",
    "method",
    "path",
    "server_name",
    "status",
    "end",
    "upstream",
    "certificate",
    "model_asked",
    "model_served",
    "request_id",
    "message",
    "stop_reason",
    "error",
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "body_bytes",
    "sent_bytes",
    "received_bytes",
    "first_byte_ms",
    "whole_ms",
)
_ASKED = frozenset({"host", "port", "method", "path", "server_name"})
_USAGE = frozenset(
    {
        "input_tokens",
        "output_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
    }
)
_OF_ANSWER = frozenset(
    {
        "end",
        "upstream",
        "certificate",
        "model_asked",
        "model_served",
        "request_id",
        "message",
        "stop_reason",
        "error",
        "sent_bytes",
        "received_bytes",
        "first_byte_ms",
        "whole_ms",
    }
)


def record_of(attempt: Attempt) -> dict[str, Any]:
    """One flat row by the names of ``COLUMNS``; None where the log says nothing."""
    answer: Mapping[str, Any] = attempt.answer or {}
    row: dict[str, Any] = {}
    for column in COLUMNS:
        if column == "session":
            row[column] = attempt.session
        elif column == "status":
            row[column] = answer.get("status") if attempt.allowed else attempt.decision["status"]
        elif column == "body_bytes":
            row[column] = attempt.decision.get("bytes")
        elif column in _ASKED:
            row[column] = attempt.decision["asked"].get(column)
        elif column in _USAGE:
            row[column] = (answer.get("usage") or {}).get(column)
        elif column in _OF_ANSWER:
            row[column] = answer.get(column)
        else:
            row[column] = attempt.decision.get(column)
    return row


def to_csv(chosen: Iterable[Attempt]) -> str:
    """A header line and a row an attempt, by RFC 4180."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for attempt in chosen:
        row = record_of(attempt)
        writer.writerow([_cell(row[column]) for column in COLUMNS])
    return text.getvalue()


def _cell(value: Any) -> Any:
    """A session chooses paths and names: what a spreadsheet would take for a formula is quoted."""
    if isinstance(value, str) and value[:1] in tuple("=+-@"):
        return f"'{value}"
    return "" if value is None else value


def to_har(chosen: Sequence[Attempt]) -> str:
    """A HAR 1.2 document: a page a session, an entry an attempt, both in the order of time.

    What the log does not know is -1 or empty, as HAR has it; what HAR has no member for stands in
    ``_recorder``.
    """
    ordered = sorted(chosen, key=lambda attempt: str(attempt.decision["time"]))
    pages: dict[str, dict[str, Any]] = {}
    for attempt in ordered:
        pages.setdefault(
            attempt.session,
            {
                "startedDateTime": attempt.decision["time"],
                "id": attempt.session,
                "title": f"session {attempt.session}",
                "pageTimings": {"onContentLoad": -1, "onLoad": -1},
            },
        )
    log = {
        "version": "1.2",
        "creator": {"name": "recorder", "version": __version__},
        "pages": list(pages.values()),
        "entries": [_entry(attempt) for attempt in ordered],
    }
    return json.dumps({"log": log}, indent=1, ensure_ascii=True) + "\n"


def _entry(attempt: Attempt) -> dict[str, Any]:
    row = record_of(attempt)
    url = _url(attempt)
    status = row["status"] or 0
    first, whole = row["first_byte_ms"], row["whole_ms"]
    wait = first if first is not None else whole or 0
    receive = max((whole or 0) - wait, 0)
    entry = {
        "pageref": attempt.session,
        "startedDateTime": attempt.decision["time"],
        "time": round(wait + receive, 1),
        "request": {
            "method": row["method"] or "-",
            "url": url,
            "httpVersion": "HTTP/1.1",
            "cookies": [],
            "headers": [],
            "queryString": [
                {"name": name, "value": value}
                for name, value in parse_qsl(urlsplit(url).query, keep_blank_values=True)
            ],
            "headersSize": -1,
            "bodySize": -1 if row["body_bytes"] is None else row["body_bytes"],
        },
        "response": {
            "status": status,
            "statusText": _phrase(status),
            "httpVersion": "HTTP/1.1",
            "cookies": [],
            "headers": [],
            "content": {"size": row["received_bytes"] or 0, "mimeType": "x-unknown"},
            "redirectURL": "",
            "headersSize": -1,
            "bodySize": -1 if row["received_bytes"] is None else row["received_bytes"],
        },
        "cache": {},
        "timings": {
            "blocked": -1,
            "dns": -1,
            "connect": -1,
            "ssl": -1,
            "send": 0,
            "wait": wait,
            "receive": round(receive, 1),
        },
        "connection": str(attempt.decision["connection"]),
        "_recorder": {name: value for name, value in row.items() if value is not None},
    }
    if row["upstream"]:
        entry["serverIPAddress"] = row["upstream"]
    return entry


def _url(attempt: Attempt) -> str:
    """An absolute URL, as HAR wants one. The log's characters are safe ones already."""
    asked = attempt.decision["asked"]
    host, port, path = attempt.host, asked.get("port", 443), str(asked.get("path", "/"))
    if not path.startswith("/"):
        path = f"/{path}"
    scheme = "http" if attempt.decision["rule"] == "plain-http" else "https"
    usual = {"https": 443, "http": 80}[scheme]
    return f"{scheme}://{host}{'' if port == usual else f':{port}'}{path}"


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
