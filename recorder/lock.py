"""One driver at a time: a lock that ends with the process that has it."""

from __future__ import annotations

import fcntl

from recorder.refusal import ExitCode, Refusal


def lock_alone(descriptor: int, reason: str) -> None:
    """Lock an open file or directory. Refusal 20, with the reason, where another process has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise Refusal(ExitCode.HELD, reason) from error
