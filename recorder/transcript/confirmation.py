"""What a plan confirms of a transcript: its taxonomy and the membership of its probes; pure.

The lock is the one member that can refuse a transcript, and only where the plan composes no read
set for its probes. A read set or a selection that moved is stated and refuses nothing: a verdict
then grades what the session did against what the corpus declares now. The tree, the seed and the
harness are recorded and compared with nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import UNSET

from recorder.plan.composition import rows_digest, selection_digest
from recorder.plan.reading import PlanText
from recorder.refusal import ExitCode, Refusal
from recorder.transcript.checker import Checked
from recorder.transcript.contract import Event
from recorder.transcript.reader import shown


@dataclass(frozen=True, slots=True)
class Dropped:
    """An event that does not count: its number in the file, from 1, and why."""

    number: int
    probe: str
    reason: str


@dataclass(frozen=True)
class Confirmation:
    """A transcript held against a plan. ``marks`` are what moved, a sentence each."""

    name: str
    plan: str
    selected: int
    events: tuple[Event, ...]
    dropped: tuple[Dropped, ...]
    marks: tuple[str, ...]

    def lines(self) -> tuple[str, ...]:
        """What to print: the counts, each event that does not count, each mark."""
        total = len(self.events) + len(self.dropped)
        probes = len({event.probe for event in self.events})
        calls = sum(len(event.calls) for event in self.events if event.calls is not UNSET)
        counted = f"in {len(self.events)} sessions and {calls} tool calls"
        over = f"{probes} of the {self.selected} probes that {self.plan} selects"
        lines = [f"{self.name}: {total} events over {over}, {counted}"]
        if self.dropped:
            lines.append(f"{self.name}: {len(self.dropped)} of {total} events did not count")
        lines += [
            f"{self.name}: event {dropped.number}: {dropped.reason}" for dropped in self.dropped
        ]
        lines += [f"{self.name}: {mark}" for mark in self.marks]
        return tuple(lines)


def confirm(checked: Checked, plan: PlanText) -> Confirmation:
    """Hold a checked transcript against the plan of the tree in front of the reader.

    Refuses (19) a transcript of another lock where the plan composes no read set for its probes,
    (11) a plan that refuses and names no lock at all.
    """
    if "lock" not in plan.members:
        raise Refusal(
            ExitCode.PLAN_REFUSES,
            f"{plan.name}: refuses its run and names no lock, so nothing can be held against it: "
            f"{plan.refusal}",
        )
    selected = {probe.id for probe in plan.probes}
    named = {event.probe for event in checked.events}
    recorded = checked.identity
    composed = bool(plan.read_set) and (
        recorded.selection == plan.members["selection"] or (bool(named) and named <= selected)
    )
    if recorded.lock != plan.members["lock"] and not composed:
        raise Refusal(
            ExitCode.CORRUPT,
            f"{checked.name}: was recorded under the lock {recorded.lock}, {plan.name} names "
            f"{plan.members['lock']} and composes no read set for its probes, so nothing says "
            "whether the move reaches a verdict; record it again, or give the plan that selects "
            "its probes",
        )
    events: list[Event] = []
    dropped: list[Dropped] = []
    for number, event in enumerate(checked.events, 1):
        if event.probe in selected:
            events.append(event)
            continue
        dropped.append(
            Dropped(
                number,
                event.probe,
                f"`{shown(event.probe)}` is not a probe that {plan.name} selects, so nothing "
                "declares what a session against it was expected to do",
            )
        )
    return Confirmation(
        name=checked.name,
        plan=plan.name,
        selected=len(plan.probes),
        events=tuple(events),
        dropped=tuple(dropped),
        marks=tuple(_marks(checked, plan, named & selected)),
    )


def _marks(checked: Checked, plan: PlanText, probes: set[str]) -> Iterator[str]:
    recorded = checked.identity
    if recorded.lock != plan.members["lock"]:
        yield (
            f"the lock moved: recorded {recorded.lock}, now {plan.members['lock']}; the plan "
            "composes a read set for these probes, so the transcript stands"
        )
    if recorded.selection not in (plan.members["selection"], selection_digest(probes)):
        yield (
            f"the selection moved: recorded {recorded.selection}, now {plan.members['selection']}"
        )
    now = plan.members["read_set"]
    if plan.read_set and recorded.read_set not in (now, _read_set(plan, probes)):
        yield (
            f"the read set moved: recorded {recorded.read_set}, now {now}; each verdict grades "
            "what the session did against the expectations that this tree declares now"
        )


def _read_set(plan: PlanText, probes: set[str]) -> str:
    """The read-set digest of some of the probes of a plan, from the rows that it prints."""
    chosen = [probe for probe in plan.probes if probe.id in probes]
    own = {probe.path for probe in chosen}
    return rows_digest(
        (path, digest)
        for path, digest in sorted(plan.read_set.items(), key=lambda row: row[0].encode())
        if path in own or any(probe.names(path) for probe in chosen)
    )
