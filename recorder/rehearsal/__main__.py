"""``python -m recorder.rehearsal``: the rehearsal provider as a process.

Standard input, line 1: one JSON object ``{"certificate": PEM, "key": PEM, "script": YAML}``, with
``"workspace"`` where the session's is not ``/workspace``. Standard input then stays open: its end
ends the process. Standard output: ``{"event":"ready","port":N}``, or one line
``{"event":"failed","reasons":[...]}`` and exit 2. With ``--report`` one line a request follows,
which somebody must then read.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import ssl
import sys
import threading
from collections.abc import Mapping
from types import FrameType

import msgspec

from recorder.refusal import ExitCode, Refusal
from recorder.rehearsal.script import load_script
from recorder.rehearsal.server import Provider, tls_context


class Start(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Line 1 of standard input."""

    script: str
    certificate: str | None = None
    key: str | None = None
    workspace: str = "/workspace"
    name: str = "script"


def main(arguments: list[str] | None = None) -> int:
    """Serve until standard input ends. Returns the exit code of what stopped it earlier."""
    parser = argparse.ArgumentParser(prog="python -m recorder.rehearsal", description=__doc__)
    # A container of its own, on a network that only sidecars share.
    parser.add_argument("--host", default="0.0.0.0")  # noqa: S104
    parser.add_argument("--port", type=int, help="default: 443, or with --plain any free one")
    parser.add_argument("--plain", action="store_true", help="plain http, for a bench on one host")
    parser.add_argument("--report", action="store_true", help="one line of output a request")
    options = parser.parse_args(arguments)
    port = options.port if options.port is not None else (0 if options.plain else 443)
    # As process 1 of a container the default action of these signals is to ignore them.
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    try:
        start = _read_start()
        script = load_script(start.script, start.name)
        provider = Provider(
            (options.host, port),
            script,
            tls=None if options.plain else _context(start),
            workspace=start.workspace,
            report=_say if options.report else _say_nothing,
        )
    except Refusal as refusal:
        _say({"event": "failed", "reasons": list(refusal.reasons)})
        return int(refusal.code)
    except OSError as error:
        _say({"event": "failed", "reasons": [f"cannot listen on {options.host}:{port}: {error}"]})
        return int(ExitCode.MISSING)
    _say({"event": "ready", "port": provider.server_address[1]})
    threading.Thread(target=_end_with_input, daemon=True).start()
    provider.serve_forever(poll_interval=60)
    return int(ExitCode.DONE)


def _read_start() -> Start:
    line = sys.stdin.buffer.readline()
    try:
        return msgspec.json.decode(line, type=Start)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Refusal(ExitCode.USAGE, f"standard input, line 1: {error}") from None


def _context(start: Start) -> ssl.SSLContext:
    if start.certificate is None or start.key is None:
        raise Refusal(ExitCode.USAGE, "standard input, line 1: certificate and key are needed")
    try:
        return tls_context(start.certificate, start.key)
    except ssl.SSLError as error:
        raise Refusal(
            ExitCode.USAGE, f"standard input, line 1: no certificate with its key: {error}"
        ) from None


_saying = threading.Lock()


def _say(event: Mapping[str, object]) -> None:
    with _saying:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()


def _say_nothing(event: Mapping[str, object]) -> None:
    del event


def _end_with_input() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os._exit(0)


def _stop(number: int, frame: FrameType | None) -> None:
    del number, frame
    os._exit(0)


if __name__ == "__main__":
    raise SystemExit(main())
