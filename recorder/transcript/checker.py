"""Whether a transcript keeps the contract: what ``recorder check`` refuses (19)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from recorder.refusal import ExitCode, Refusal
from recorder.transcript.contract import ARMS, REHEARSAL_PREFIX, TIERS, Event, Identity
from recorder.transcript.reader import (
    EVENTS_SECTION,
    IDENTITY_SECTION,
    Fault,
    Reading,
    read_transcript,
    shown,
)

REHEARSAL_WORDS = "a rehearsal against a scripted provider, not a measurement"


@dataclass(frozen=True, slots=True)
class Checked:
    """A transcript that keeps the contract. ``rehearsal``: its identity says it is one."""

    name: str
    identity: Identity
    events: tuple[Event, ...]
    rehearsal: bool

    def summary(self) -> str:
        """One line: what was read, and that it is a rehearsal where it is."""
        count = len(self.events)
        events = f"{count} {'event' if count == 1 else 'events'}"
        line = f"{self.name}: {events}, tier {self.identity.tier}, arm {self.identity.arm}"
        return f"{line}; {REHEARSAL_WORDS}" if self.rehearsal else line


def is_rehearsal(identity: Identity) -> bool:
    """Whether an identity names a rehearsal in either of its two names."""
    return REHEARSAL_PREFIX in (
        identity.model[: len(REHEARSAL_PREFIX)],
        identity.served_version[: len(REHEARSAL_PREFIX)],
    )


def check(text: str, name: str) -> Checked:
    """The transcript, checked. Raises ``Refusal`` (19): one line a fault, in the file's order."""
    reading = read_transcript(text)
    faults = sorted([*reading.faults, *_rules(reading)], key=lambda fault: fault.line)
    if faults or reading.identity is None:
        raise Refusal(ExitCode.CORRUPT, *(fault.text(name) for fault in faults))
    events = tuple(located.event for located in reading.events)
    return Checked(name, reading.identity, events, is_rehearsal(reading.identity))


def _rules(reading: Reading) -> Iterator[Fault]:
    for key, known in (("tier", TIERS), ("arm", ARMS)):
        member = reading.members.get(key)
        if member is not None and member.value not in known:
            where = f"{IDENTITY_SECTION} block, key {key}"
            yield Fault(
                member.line, where, f"{shown(str(member.value))} is not one of {', '.join(known)}"
            )
    cost = reading.members.get("cost_cents")
    if cost is not None and isinstance(cost.value, int) and cost.value < 0:
        where = f"{IDENTITY_SECTION} block, key cost_cents"
        yield Fault(cost.line, where, f"{cost.value} is not a whole number of cents")
    first: dict[tuple[str, str], int] = {}
    for number, located in enumerate(reading.events, 1):
        named = (located.event.probe, located.event.session)
        if named in first:
            yield Fault(
                located.line,
                f"{EVENTS_SECTION} block, event {number}, key session",
                f"{shown(named[1])} is already the session of {shown(named[0])} in the event on "
                f"line {first[named]}; sessions are distinct within a probe",
            )
        first.setdefault(named, located.line)
