"""The verbs ``audit …``: what the sessions of a directory tried, and what left. No engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from proxy.decision import Rule
from recorder.audit.attempts import HEADINGS, Attempt, By, Row, Selection, attempts, rows
from recorder.audit.export import record_of, to_csv, to_har
from recorder.audit.logs import Logs, read_logs
from recorder.audit.statement import statement
from recorder.batch.table import print_table
from recorder.durable import write_durable
from recorder.refusal import ExitCode, Refusal

SCHEMA = "recorder.audit/1"
SHOWN = 3

audit = typer.Typer(help="What the sessions tried to reach, and what left.", no_args_is_help=True)

Directory = Annotated[Path, typer.Argument(help="A batch's directory, or one session's.")]
Hosts = Annotated[
    list[str] | None, typer.Option("--host", help="Only this host; `*.test` is a pattern.")
]
Rules = Annotated[
    list[str] | None, typer.Option("--rule", help="Only what this rule refused, or `allowed`.")
]
Sessions = Annotated[list[str] | None, typer.Option("--session", help="Only this session.")]
Refused = Annotated[bool, typer.Option("--refused", help="Only what was refused.")]
AsJson = Annotated[bool, typer.Option("--json", help="For a program to read.")]


def register(app: typer.Typer) -> None:
    app.add_typer(audit, name="audit")


@audit.command("show")
def show(
    directory: Directory,
    by: Annotated[
        Literal["host", "rule", "session", "each"],
        typer.Option(help="One row a host, a rule, a session, or each attempt."),
    ] = "host",
    host: Hosts = None,
    rule: Rules = None,
    session: Sessions = None,
    refused: Refused = False,
    as_json: AsJson = False,
) -> None:
    """Print what was tried and what became of it, and in one line what left."""
    logs = read_logs(directory)
    chosen = _chosen(logs, host, rule, session, refused)
    said = statement(logs)
    if as_json:
        _print_json(
            {
                "schema": SCHEMA,
                "statement": said,
                "faults": [*logs.faults, *logs.unproven],
                "by": by,
                "rows": [record_of(attempt) for attempt in chosen]
                if by == "each"
                else [_row_record(row, by) for row in rows(chosen, by)],
            }
        )
    else:
        print_table(_each_table(chosen) if by == "each" else _table(rows(chosen, by), by))
        print(said)
    refuse_faults(logs)


@audit.command("verify")
def verify(directory: Directory, as_json: AsJson = False) -> None:
    """Hold every log to its chain, to the published schema and to its session's evidence."""
    logs = read_logs(directory)
    said = statement(logs)
    if as_json:
        _print_json(
            {
                "schema": SCHEMA,
                "statement": said,
                "unstarted": list(logs.unstarted),
                "sessions": [
                    {
                        "session": log.name,
                        "path": str(log.path),
                        "lines": len(log.lines),
                        "faults": list(log.faults),
                        "unproven": list(log.unproven),
                    }
                    for log in logs.sessions
                ],
            }
        )
    else:
        for log in logs.sessions:
            if not log.faults:
                print(f"{log.name}: whole, {len(log.lines)} lines")
        for name in logs.unstarted:
            print(f"{name}: did not start, so it has no log")
        for why in logs.unproven:
            print(f"not known: {why}")
        print(said)
    refuse_faults(logs)


@audit.command("export")
def export(
    directory: Directory,
    to: Annotated[Literal["har", "csv"], typer.Option(help="HAR 1.2 or CSV.")],
    out: Annotated[
        Path | None, typer.Option(help="The file to write; standard output without it.")
    ] = None,
    host: Hosts = None,
    rule: Rules = None,
    session: Sessions = None,
    refused: Refused = False,
) -> None:
    """Write what was tried for other tools to read. No bodies, headers or credentials are in it."""
    logs = read_logs(directory)
    # What does not verify is not handed on in a form in which that no longer shows.
    refuse_faults(logs)
    chosen = _chosen(logs, host, rule, session, refused)
    text = to_har(chosen) if to == "har" else to_csv(chosen)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_durable(out, text.encode())


def _chosen(
    logs: Logs,
    host: Sequence[str] | None,
    rule: Sequence[str] | None,
    session: Sequence[str] | None,
    refused: bool,
) -> list[Attempt]:
    known = {"allowed", *Rule}
    for name in rule or ():
        if name not in known:
            raise Refusal(
                ExitCode.USAGE, f"--rule {name}: is no rule; they are {', '.join(sorted(known))}"
            )
    names = {log.name for log in logs.sessions}
    for name in session or ():
        if name not in names:
            raise Refusal(ExitCode.USAGE, f"--session {name}: none of {logs.directory} is named so")
    selection = Selection(tuple(host or ()), tuple(rule or ()), tuple(session or ()), refused)
    return [attempt for attempt in attempts(logs.sessions) if selection.takes(attempt)]


def refuse_faults(logs: Logs) -> None:
    """Refusal 19 with the first faults of each log that does not verify."""
    reasons: list[str] = []
    for log in logs.sessions:
        reasons += log.faults[:SHOWN]
        if len(log.faults) > SHOWN:
            reasons.append(f"{log.path}: and {len(log.faults) - SHOWN} faults more")
    if reasons:
        raise Refusal(ExitCode.CORRUPT, *reasons)


def _row_record(row: Row, by: By) -> dict[str, Any]:
    return {
        **dict(zip(HEADINGS[by], row.key, strict=True)),
        "attempts": row.attempts,
        "sessions": row.sessions,
        "sent_bytes": row.sent_bytes,
        "received_bytes": row.received_bytes,
        "first_byte_ms": row.first_byte_ms,
    }


def _table(made: Sequence[Row], by: By) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in HEADINGS[by]:
        table.add_column(heading, no_wrap=True)
    for heading in ("attempts", "sessions", "sent", "received", "first byte"):
        table.add_column(heading, justify="right")
    for row in made:
        table.add_row(
            *row.key,
            str(row.attempts),
            str(row.sessions),
            _bytes(row.sent_bytes),
            _bytes(row.received_bytes),
            "-" if row.first_byte_ms is None else f"{row.first_byte_ms:.0f} ms",
        )
    return table


def _each_table(chosen: Sequence[Attempt]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("session", "time", "outcome", "at", "asked", "status"):
        table.add_column(heading, no_wrap=heading != "asked")
    for heading in ("sent", "received"):
        table.add_column(heading, justify="right")
    for attempt in chosen:
        row = record_of(attempt)
        asked = " ".join(str(row[name]) for name in ("method", "path") if row[name])
        table.add_row(
            attempt.session,
            str(row["time"])[11:23],
            attempt.outcome,
            str(row["layer"]),
            f"{attempt.place} {asked}".strip(),
            str(row["status"] or "closed"),
            _bytes(row["sent_bytes"] or 0),
            _bytes(row["received_bytes"] or 0),
        )
    return table


def _bytes(count: int) -> str:
    if not count:
        return "-"
    return f"{count / 1000:.1f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=1))
