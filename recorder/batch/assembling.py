"""A batch's transcripts, assembled from its files alone: nothing is asked, run or spent.

The same files give the same bytes, on any machine. A line's transcript is assembled as soon as one
of its sessions has recorded, and is a draft until the line is whole.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import msgspec

from recorder.batch.assembly import (
    Expected,
    Kept,
    LineStanding,
    assemble,
    hold_to_digests,
    line_standing,
    read_session,
    refuse_link,
)
from recorder.batch.pinned import Pinned, PinnedLine
from recorder.batch.schedule import Slot, count, slots
from recorder.durable import write_durable
from recorder.ledger.chain import LEDGER
from recorder.ledger.journal import read_state
from recorder.ledger.state import State
from recorder.plain_file import decode, read_plain
from recorder.plan.reading import PlanText, read_plan
from recorder.refusal import ExitCode, Refusal

BATCH = "batch.json"
ASSEMBLED = "assembled"
SESSIONS = "sessions"


@dataclass(frozen=True)
class Transcript:
    """A line and its transcript. ``text`` is None where none of its sessions recorded."""

    standing: LineStanding
    text: str | None

    @property
    def file(self) -> str:
        return f"{self.standing.name}.md"


@dataclass(frozen=True)
class Assembled:
    """``rows``: every session in the order of its line, as its directory holds it; None where it
    has no end. ``state`` is what the ledger says."""

    transcripts: tuple[Transcript, ...]
    rows: tuple[tuple[str, Kept | None], ...]
    state: State

    def write(self, directory: Path) -> tuple[Path, ...]:
        """Write each transcript into a directory; a line's that has none any more goes."""
        refuse_link(directory)
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        written = []
        for transcript in self.transcripts:
            path = directory / transcript.file
            if transcript.text is None:
                path.unlink(missing_ok=True)
            else:
                write_durable(path, transcript.text.encode())
                written.append(path)
        return tuple(written)


def assemble_batch(directory: Path, state: State | None = None) -> Assembled:
    """Read a batch and assemble every line. ``state`` is the ledger's, where it was read already.

    Refusal 2 for what is no batch's directory, 19 for files that are not what was recorded.
    """
    pinned = read_pinned(directory)
    state = state or read_state(directory)
    if state is None:
        raise Refusal(
            ExitCode.CORRUPT,
            f"{directory}: holds {BATCH} and no {LEDGER}, so nothing says what ran",
        )
    transcripts: list[Transcript] = []
    rows: list[tuple[str, Kept | None]] = []
    for number, line in enumerate(pinned.lines, start=1):
        own = line_slots(pinned, number)
        name = line_name(number, line)
        plan = _plan(directory / "plans" / f"{name}.txt")
        kept = [_kept(directory, slot, line, plan, state) for slot in own]
        rows += zip((slot.name for slot in own), kept, strict=True)
        recorded = [each for each in kept if each is not None and each.event is not None]
        standing = line_standing(name, [slot.name for slot in own], state)
        text = assemble(standing, recorded) if recorded else None
        transcripts.append(Transcript(standing, text))
    return Assembled(tuple(transcripts), tuple(rows), state)


def read_pinned(directory: Path) -> Pinned:
    """batch.json of a batch's directory. Refusal 2 where there is none, 19 for a broken one."""
    path = directory / BATCH
    refuse_link(path)
    try:
        pinned = decode(read_plain(path), Pinned)
    except FileNotFoundError as error:
        raise Refusal(
            ExitCode.USAGE, f"{directory}: is no batch's directory: it holds no {BATCH}"
        ) from error
    except NotADirectoryError as error:
        raise Refusal(ExitCode.USAGE, f"{directory}: is no directory: name a batch's") from error
    except msgspec.MsgspecError as error:
        raise Refusal(ExitCode.CORRUPT, f"{path}: is not a batch's own record: {error}") from error
    if count(_members(pinned)) != len(pinned.order):
        raise Refusal(ExitCode.CORRUPT, f"{path}: its order does not name what its lines plan")
    return pinned


def _plan(path: Path) -> PlanText:
    """A batch's own copy of a plan, which is no link and no pipe as one that is given may be."""
    try:
        return read_plan(read_plain(path).decode("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise Refusal(ExitCode.CORRUPT, f"{path}: is not UTF-8 (byte {error.start + 1})") from error


def line_name(number: int, line: PinnedLine) -> str:
    return f"L{number}-{line.tier}-{line.arm}"


def line_slots(pinned: Pinned, number: int) -> tuple[Slot, ...]:
    """The sessions of a line in the plan's order; ``number`` counts from 1."""
    own = (slot for slot in slots(_members(pinned), pinned.seed) if slot.line == number)
    return tuple(sorted(own, key=lambda slot: (slot.position, slot.repetition)))


def _members(pinned: Pinned) -> list[tuple[str, str, int, int]]:
    return [(line.tier, line.arm, len(line.probes), line.repetitions) for line in pinned.lines]


def withdraw(directory: Path, lines: Collection[str]) -> None:
    """Take away the transcripts of lines that go on: what they say is about to be wrong."""
    refuse_link(directory / ASSEMBLED)
    for name in lines:
        (directory / ASSEMBLED / f"{name}.md").unlink(missing_ok=True)


def _kept(
    directory: Path, slot: Slot, line: PinnedLine, plan: PlanText, state: State
) -> Kept | None:
    attempt = state.latest(slot.name)
    if attempt is None or attempt.end is None:
        return None
    place = directory / SESSIONS / slot.name
    aside = place.with_name(f"{slot.name}.attempt-{attempt.number}")
    if aside.exists():
        # A driver moved it aside for another attempt, and ended before that began.
        place = aside
    refuse_link(directory / SESSIONS)
    refuse_link(place)
    if not place.is_dir():
        raise Refusal(ExitCode.CORRUPT, f"{place}: is missing, and the ledger says that it ended")
    hold_to_digests(place, attempt.end)
    probe = line.probes[slot.position - 1]
    answers = next((each.answers for each in plan.probes if each.id == probe), ())
    expected = Expected(slot.name, probe, line.tier, line.arm, tuple(answers) or None)
    kept = read_session(place, expected)
    recorded = kept is not None and kept.event is not None
    if kept is None or recorded != (attempt.end.outcome == "recorded"):
        raise Refusal(
            ExitCode.CORRUPT,
            f"{place}: says another end than the ledger, which has it {attempt.end.outcome}",
        )
    return kept
