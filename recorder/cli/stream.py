"""Verbs over files alone: derive, check. They reach no engine and no network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
import typer

from recorder.evidence.corroboration import corroborate
from recorder.evidence.corroboration_record import record_of, require_agreement, rows
from recorder.evidence.pricing import parse_prices, shipped_prices
from recorder.plain_file import decode, read_plain
from recorder.plan.reading import read_plan_file
from recorder.refusal import ExitCode, Refusal
from recorder.session.harness import WORKSPACE
from recorder.stream.answer import derive_answer
from recorder.stream.observation import Observation, observe
from recorder.stream.outside import outside_paths
from recorder.stream.provider import Unknown, provider_members
from recorder.stream.whole import require_whole
from recorder.transcript.confirmation import confirm
from recorder.transcript.file import check_file

READ_SIZE = 1 << 20

derive = typer.Typer(help="Derive one value from a raw stream.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.command("check")(check_transcripts)
    app.add_typer(derive, name="derive")


def answer_set(text: str | None) -> tuple[str, ...] | None:
    """The declared answers of ``--answers "a, b"``; None where there are none."""
    if text is None:
        return None
    return tuple(part.strip() for part in text.split(",") if part.strip()) or None


def check_transcripts(
    files: Annotated[list[Path], typer.Argument(help="Transcripts to check.")],
    plan: Annotated[
        Path | None, typer.Option(help="The text of a plan to hold them against.")
    ] = None,
) -> None:
    """Refuse a transcript that does not keep the contract (19), naming line, block and key.

    With a plan: one of another lock is refused where the plan has no read set for its probes; a
    read set that moved is said, and an event of a probe that is not selected does not count.
    """
    against = None if plan is None else read_plan_file(plan)[0]
    reasons: list[str] = []
    code = ExitCode.DONE
    for path in files:
        try:
            checked = check_file(path)
            confirmed = None if against is None else confirm(checked, against)
            print(checked.summary())
            for line in confirmed.lines() if confirmed else ():
                print(line)
        except Refusal as refusal:
            # Every file is checked before the verb ends: a batch of them is refused whole, and
            # the graver cause (19) is the exit code.
            reasons += refusal.reasons
            code = max(code, refusal.code)
    if reasons:
        raise Refusal(code, *reasons)


@derive.command("provider")
def provider(file: Annotated[Path, typer.Argument(help="A raw stream.")]) -> None:
    """Print model, served_version and cost_cents; an unknown cost is said, never 0."""
    members = provider_members(_whole(file))
    cost = "unknown" if isinstance(members.cost_cents, Unknown) else members.cost_cents
    print(f"model: {members.model}\nserved_version: {members.served_version}\ncost_cents: {cost}")


@derive.command("answer")
def answer(
    file: Annotated[Path, typer.Argument(help="A raw stream.")],
    answers: Annotated[str, typer.Option(help='The declared answers, "a, b".')],
) -> None:
    """Print the declared answer that the final line states, or nothing."""
    found = derive_answer(_whole(file).final_text, answer_set(answers) or ())
    if found is not None:
        print(found)


@derive.command("outside")
def outside(
    file: Annotated[Path, typer.Argument(help="A raw stream.")],
    workspace: Annotated[str, typer.Option(help="The session's own name of it.")] = WORKSPACE,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Print the paths outside the workspace that the session named; 13 where not countable."""
    paths = outside_paths(_observed(file), workspace)
    if paths is None:
        raise Refusal(
            ExitCode.OBSERVATION, f"{file}: was not read whole, so its paths are not counted"
        )
    if as_json:
        print(json.dumps(paths))
    else:
        for path in paths:
            print(json.dumps(path) if not path.isprintable() else path)


def _whole(file: Path, *, need_result: bool = False) -> Observation:
    """A stream that can be derived from. Refusal 13 for one that is cut or states no init."""
    return require_whole(_observed(file), need_result=need_result, name=str(file))


@derive.command("corroboration")
def corroboration(
    session_dir: Annotated[Path, typer.Argument(help="A recorded session's directory.")],
    as_json: Annotated[bool, typer.Option("--json")] = False,
    prices: Annotated[Path | None, typer.Option(help="Another price table.")] = None,
) -> None:
    """Join raw.jsonl with egress.jsonl: exit 14 where they disagree, 19 where the log is broken.

    A raw.jsonl that is not whole, from its init line to its result line, is 13.
    """
    table = shipped_prices() if prices is None else parse_prices(_text(prices), str(prices))
    name, task = _session_of(session_dir)
    # Without its end a stream agrees with everything that it does not show.
    _opened(session_dir / "raw.jsonl").close()
    _whole(session_dir / "raw.jsonl", need_result=True)
    with _opened(session_dir / "raw.jsonl") as raw, _opened(session_dir / "egress.jsonl") as log:
        record = record_of(corroborate(raw, log, task=task, session=name, prices=table))
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(record), indent=2).decode())
    else:
        for what, count in rows(record):
            print(f"{what:32}{count}")
    require_agreement(record, str(session_dir))


class _Named(msgspec.Struct):
    """What evidence.json says of a session that its streams do not: its name and its task."""

    session: str
    argv: tuple[str, ...]


def _session_of(directory: Path) -> tuple[str | None, str | None]:
    """Name and task of a session; None for both where it left no evidence."""
    path = directory / "evidence.json"
    try:
        named = decode(read_plain(path), _Named)
    except FileNotFoundError:
        # A session that had no end: its two streams are joined all the same.
        return None, None
    except (OSError, msgspec.MsgspecError) as error:
        raise Refusal(ExitCode.USAGE, f"{path}: cannot be read: {error}") from error
    return named.session, named.argv[-1] if named.argv[-2:-1] == ("--",) else None


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise Refusal(
            ExitCode.USAGE, f"{path}: {error.strerror}: give a recorded session's directory"
        ) from error


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(ExitCode.USAGE, f"{path}: cannot be read: {error}") from error


def _observed(file: Path) -> Observation:
    def chunks() -> Iterator[bytes]:
        with file.open("rb") as opened:
            while chunk := opened.read(READ_SIZE):
                yield chunk

    try:
        return observe(chunks())
    except OSError as error:
        raise Refusal(ExitCode.USAGE, f"{file}: {error.strerror}: give a raw stream") from error
