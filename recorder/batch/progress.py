"""What a person sees while a batch runs: a live picture on a terminal, else plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from recorder.batch.halts import Halt
from recorder.batch.recording import Job, Recorded
from recorder.batch.status import Status, duration

REFRESHES = 2.0
"""A second. Each folds the ledger's attempts: **measured** at 14 ms for 20,000 of them."""


def picture(status: Status) -> RenderableType:
    """A status as a person follows it: a bar, then the status' own lines."""
    done = status.recorded + status.failed + status.left_out
    bar = Table.grid(padding=(0, 1))
    bar.add_row(
        ProgressBar(total=max(status.jobs, 1), completed=done, width=40),
        Text(f"{done}/{status.jobs}"),
    )
    return Group(bar, *(Text(line, no_wrap=True, overflow="ellipsis") for line in status.said()))


class Progress:
    """Told by the driver, from any thread. ``status`` is asked for each picture, once it is set.

    ``legible`` makes a line of text that a corpus or a session wrote.
    """

    def __init__(
        self,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
        legible: Callable[[str], str] = str,
    ) -> None:
        self._console = console
        self._clock = clock
        self._legible = legible
        self._started = clock()
        self.status: Callable[[], Status] | None = None

    @contextmanager
    def shown(self) -> Iterator[None]:
        """The live picture while the block runs, where the console is a terminal."""
        if not self._console.is_terminal:
            yield
            return
        live = Live(
            console=self._console,
            get_renderable=self._picture,
            refresh_per_second=REFRESHES,
            transient=True,
            redirect_stdout=False,
        )
        with live:
            yield

    def began(self, job: Job) -> None:
        self._line(job.session)

    def ended(self, recorded: Recorded, done: int, total: int) -> None:
        refusal = recorded.refusal
        end = "recorded" if refusal is None else f"exit {int(refusal.code)}"
        self._line(f"{recorded.job.session}  {end}  {done}/{total}")
        for reason in refusal.reasons if refusal is not None else ():
            self.said(reason)

    def said(self, reason: str) -> None:
        """One line of the recorder's own, above the picture."""
        self._print(f"recorder: {self._legible(reason)}", soft_wrap=True)

    def waits(self, halt: Halt, seconds: float) -> None:
        until = datetime.fromtimestamp(time.time() + seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
        self.said(f"{halt.rule.name}: waits {duration(seconds)}, until {until}, and goes on")

    def _line(self, what: str) -> None:
        if not self._console.is_terminal:
            seconds = self._clock() - self._started
            self._print(f"{seconds:6.1f} s  {what}")

    def _print(self, text: str, *, soft_wrap: bool = False) -> None:
        # Whoever read it closed it, or the terminal is gone. The ledger has all of it, and a batch
        # that spends is not ended for its picture.
        with suppress(OSError):
            self._console.print(text, highlight=False, markup=False, soft_wrap=soft_wrap)

    def _picture(self) -> RenderableType:
        return Text("planning") if self.status is None else picture(self.status())


class Outlived(Console):
    """A console that a batch outlives: rich's own ends the process where nobody reads it."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


def standard_error() -> Console:
    """Where progress goes: standard output is the result's."""
    return Outlived(stderr=True, file=sys.stderr)
