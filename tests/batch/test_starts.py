"""Which session starts next: the order, the caps, the bound of a run, and a stop."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

from recorder.batch.admission import Admission, Priced, caps_of
from recorder.batch.starts import Queued, Starts


def queued(*sessions: str, dollars: str = "0.50", tier: str = "campaign") -> list[Queued]:
    return [
        Queued(job_of(session), Priced(session, tier, Decimal(dollars))) for session in sessions
    ]


def job_of(session: str) -> Any:
    return SimpleNamespace(session=session)


def taken(starts: Starts) -> list[str]:
    found = []
    while (job := starts.take()) is not None:
        found.append(job.session)
    return found


def starts_of(
    wanted: list[Queued], cap: str | None = None, stop: threading.Event | None = None, **more: Any
) -> Starts:
    caps = caps_of(None if cap is None else Decimal(cap), more.pop("tiers", {}))
    return Starts(wanted, Admission(caps, **more), (stop or threading.Event()).is_set)


def test_sessions_start_in_the_batch_s_order() -> None:
    starts = starts_of(queued("c", "a", "b"))
    assert taken(starts) == ["c", "a", "b"]
    assert (starts.left, starts.bounded, starts.refused) == (0, False, [])


def test_a_bound_of_sessions_leaves_the_rest_o19() -> None:
    starts = starts_of(queued("a", "b", "c"), max_sessions=2)
    assert taken(starts) == ["a", "b"]
    assert (starts.left, starts.bounded) == (1, True)


def test_what_a_cap_refuses_is_passed_over_and_named() -> None:
    wanted = [
        *queued("a", dollars="0.90"),
        *queued("b", dollars="2.00"),
        *queued("c", dollars="0.10"),
    ]
    starts = starts_of(wanted, "1.00")
    assert starts.take() == job_of("a")
    starts.settle(job_of("a"), Decimal("0.90"))
    assert taken(starts) == ["c"]
    assert [priced.session for priced, _ in starts.refused] == ["b"]


def test_a_session_waits_for_what_those_in_flight_will_have_cost() -> None:
    starts = starts_of(queued("a", "b"), "0.60")
    first = starts.take()
    assert first is not None
    with ThreadPoolExecutor(1) as threads:
        second = threads.submit(starts.take)
        starts.settle(first, Decimal("0.10"))
        assert second.result(10) == job_of("b")


def test_a_stop_ends_a_wait_for_money_and_starts_nothing() -> None:
    stop = threading.Event()
    starts = starts_of(queued("a", "b"), "0.60", stop)
    starts.take()
    with ThreadPoolExecutor(1) as threads:
        second = threads.submit(starts.take)
        stop.set()
        assert second.result(10) is None
    assert starts.left == 1
    assert starts_of(queued("a"), stop=stop).take() is None


def test_what_is_given_back_holds_nothing() -> None:
    starts = starts_of(queued("a", "b"), "0.50")
    first = starts.take()
    assert first is not None
    starts.give_back(first)
    assert starts.take() == job_of("b")


def test_a_tier_that_is_at_its_ceiling_stops_its_own_sessions_alone() -> None:
    wanted = [*queued("a", "b"), *queued("c", tier="regression")]
    starts = starts_of(wanted, tiers={"campaign": Decimal("0.50"), "regression": Decimal("0.50")})
    first = starts.take()
    assert first is not None
    starts.settle(first, Decimal("0.50"))
    assert taken(starts) == ["c"]
    assert starts.refused[0][1].cap.name == "the ceiling of the campaign tier"
