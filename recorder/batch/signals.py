"""What Ctrl-C and SIGTERM do to a batch: the first starts nothing more, the second ends it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from recorder.refusal import Interrupt

GENTLE = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Told:
    """The first signal's name, once it came."""

    name: str | None = None


@contextmanager
def ending_gently(stop: threading.Event, first: Told) -> Iterator[None]:
    """While the block runs, the first signal sets ``stop`` and the second raises ``Interrupt``.

    A signal that the caller ignores (nohup, a shell's background job) stays ignored. Only the main
    thread can be told of signals, so in another nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: handler
        for number in GENTLE
        if (handler := signal.getsignal(number)) is not signal.SIG_IGN
    }

    def told(number: int, _: FrameType | None) -> None:
        if stop.is_set():
            for other in before:
                signal.signal(other, signal.SIG_IGN)
            raise Interrupt(number)
        first.name = name = signal.Signals(number).name
        stop.set()
        # No print: the signal may have come in the middle of one.
        os.write(
            2,
            f"recorder: {name}: no more sessions start, and those that run come to their end; "
            f"once more ends them at once\n".encode(),
        )

    for number in before:
        signal.signal(number, told)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is told:
                signal.signal(number, handler)
