"""How much of a session a page shows, so that it stays small. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from recorder.report.view import BatchView, CallView, FileView, SessionView


@dataclass(frozen=True)
class Limits:
    """Characters of an argument, lines of a file, and calls or requests of a session."""

    argument: int = 4000
    difference: int = 400
    rows: int = 2000

    def said(self) -> str:
        return (
            f"Arguments are shown to {self.argument} characters, files to {self.difference} lines, "
            f"calls and requests to {self.rows} a session; what is longer says so."
        )


# A terminal shows one session, and all of it.
WHOLE = Limits(argument=1 << 20, difference=1 << 20, rows=1 << 20)

SMALLER = (Limits(1000, 100, 1000), Limits(300, 30, 300), Limits(100, 8, 100), Limits(40, 0, 30))


def trimmed(view: BatchView, limits: Limits) -> BatchView:
    """The same view with at most ``limits`` of each session."""
    return msgspec.structs.replace(
        view,
        sessions=tuple(_session(session, limits) for session in view.sessions),
        limits=limits.said(),
    )


def _session(session: SessionView, limits: Limits) -> SessionView:
    return msgspec.structs.replace(
        session,
        calls=tuple(_call(call, limits) for call in session.calls[: limits.rows]),
        more_calls=session.more_calls + max(0, len(session.calls) - limits.rows),
        requests=session.requests[: limits.rows],
        breaks=session.breaks[: limits.rows],
        more_breaks=session.more_breaks + max(0, len(session.breaks) - limits.rows),
        more_requests=session.more_requests + max(0, len(session.requests) - limits.rows),
        files=None
        if session.files is None
        else tuple(_file(file, limits) for file in session.files),
    )


def _call(call: CallView, limits: Limits) -> CallView:
    over = len(call.argument) - limits.argument
    if over <= 0:
        return call
    return msgspec.structs.replace(
        call, argument=call.argument[: limits.argument], cut=call.cut + over
    )


def _file(file: FileView, limits: Limits) -> FileView:
    if file.diff is None or len(file.diff) <= limits.difference:
        return file
    return msgspec.structs.replace(
        file,
        diff=file.diff[: limits.difference],
        cut=file.cut + len(file.diff) - limits.difference,
    )
