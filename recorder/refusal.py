"""A refusal: one cause, one exit code, one line on standard error for each reason."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """The exit codes of every verb. One cause each; the table is in docs/exit-codes.md."""

    DONE = 0
    USAGE = 2
    MISSING = 3
    MOVED = 4
    PLAN = 5
    PLACE = 6
    ENTER = 7
    INSTRUMENT = 8
    NAMED = 9
    HARNESS = 10
    PLAN_REFUSES = 11
    CONFINEMENT = 12
    OBSERVATION = 13
    WITNESSES = 14
    LEFT = 15
    CAP = 16
    FAILED = 17
    UNCERTAIN = 18
    CORRUPT = 19
    HELD = 20


class Refusal(Exception):  # noqa: N818 - the contract's word for it
    """The recorder will not go on.

    Each reason is one line that names the file or host, the rule, and what to do.
    """

    def __init__(self, code: ExitCode, *reasons: str) -> None:
        super().__init__("; ".join(reasons))
        self.code = code
        self.reasons = reasons


class Interrupt(BaseException):
    """A signal told the command to end.

    No ``Exception``, so that nothing that handles a failure takes it for one, and no
    ``KeyboardInterrupt``, which the command-line library ends without a word.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
