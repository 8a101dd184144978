"""Which session starts next: the batch's order, as far as the caps, the bound and a stop let it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from recorder.batch.admission import Admission, Admitted, Bound, Priced, Refused, Waits
from recorder.batch.recording import Job

LOOK_SECONDS = 0.5
"""How often a place that waits for money looks whether everything was stopped."""


@dataclass(frozen=True, slots=True)
class Queued:
    """A session that is due, at the price that its tier declares."""

    job: Job
    priced: Priced


class Starts:
    """Hands out the sessions of one run, from any thread.

    A session that a cap refuses is passed over: a cheaper one, or one of another tier, may still
    fit. ``stopped`` is asked before each.
    """

    def __init__(
        self, queued: Sequence[Queued], admission: Admission, stopped: Callable[[], bool]
    ) -> None:
        self.admission = admission
        self._stopped = stopped
        self.refused: list[tuple[Priced, Refused]] = []
        self.bounded = False
        self._waiting = deque(queued)
        self._taking = threading.Lock()

    @property
    def left(self) -> int:
        """Sessions that were neither handed out nor refused."""
        return len(self._waiting)

    def take(self) -> Job | None:
        """The next session that may start, its price held; None where none will.

        Waits while only what sessions in flight will have cost decides it: whoever asks must not
        keep one of those from its end.
        """
        with self._taking:
            while self._waiting and not self.bounded and not self._stopped():
                queued = self._waiting[0]
                match self.admission.decide(queued.priced):
                    case Admitted():
                        self._waiting.popleft()
                        return queued.job
                    case Refused() as refused:
                        self._waiting.popleft()
                        self.refused.append((queued.priced, refused))
                    case Bound():
                        self.bounded = True
                    case Waits():
                        self.admission.wait(LOOK_SECONDS)
            return None

    def stopped(self) -> bool:
        return self._stopped()

    def give_back(self, job: Job) -> None:
        """A session that was handed out did not start: nothing is held for it any more."""
        self.admission.release(job.session)

    def settle(self, job: Job, cost: Decimal | None) -> None:
        """A session ended: ``cost`` in dollars, None where nobody knows it."""
        self.admission.settle(job.session, cost)
