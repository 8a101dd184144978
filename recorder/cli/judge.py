"""The verb ``judge``: sessions, a repository's changes, or one call, by disciplines as data."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from recorder.batch.table import print_table
from recorder.disciplines.changes import collect
from recorder.disciplines.declaration import Disciplines, Level
from recorder.disciplines.explain import explanation
from recorder.disciplines.hook import PayloadError, read_payload, worlds_of
from recorder.disciplines.loading import load_disciplines, merged
from recorder.disciplines.protection import change_verdict, protection_verdict
from recorder.disciplines.rates import Rate, rates_by_arm
from recorder.disciplines.schema import schema
from recorder.disciplines.sessions import (
    LOG,
    RECORD,
    BatchVerdicts,
    encode_verdicts,
    judge_batch,
    log_of,
)
from recorder.disciplines.verdicts import HOOK, Verdict, git_surface, row_of, verdicts_of
from recorder.durable import write_durable
from recorder.refusal import ExitCode, Refusal
from recorder.report.visible import one_line, visible

EXPLAIN, SCHEMA = "explain", "schema"
BLOCKED = 1
HOOK_BLOCKED = 2
FOLDER = ".recorder"


def register(app: typer.Typer) -> None:
    app.command("judge")(judge)


def judge(
    target: Annotated[
        str | None,
        typer.Argument(help="A batch's or a session's directory; or `explain`, or `schema`."),
    ] = None,
    disciplines: Annotated[
        list[Path] | None,
        typer.Option("--disciplines", "-d", help="A file of disciplines. Repeatable."),
    ] = None,
    corpus: Annotated[
        list[Path] | None,
        typer.Option(help="A tree whose files are the baseline's texts. Repeatable."),
    ] = None,
    git: Annotated[
        str | None,
        typer.Option(help="Judge a repository's changes: staged, worktree, A..B or A...B."),
    ] = None,
    hook: Annotated[
        bool, typer.Option("--hook", help="Judge one PreToolUse payload on standard input.")
    ] = False,
    repository: Annotated[
        Path | None, typer.Option(help="The repository of --git and --hook.")
    ] = None,
    enforce: Annotated[
        str | None, typer.Option(help="The level of --git: block or advise.")
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="Where rows go, instead of the usual place.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For a program to read.")] = False,
) -> None:
    """Judge by disciplines: what was done, what is about to be committed, or one call."""
    if hook:
        raise typer.Exit(_hook(disciplines or [], repository, log))
    if target == SCHEMA:
        print(json.dumps(schema(), indent=2))
        return
    loaded = load(disciplines or [])
    if git is not None:
        raise typer.Exit(_git(loaded, git, repository or Path(), enforce, log, as_json))
    if target is None:
        raise Refusal(
            ExitCode.USAGE, "judge: name a batch's or a session's directory, --git or --hook"
        )
    if target == EXPLAIN:
        _explain(loaded, as_json)
        return
    _sessions(loaded, Path(target), corpus or [], log, as_json)


def load(paths: Iterable[Path], *, allow_unresolved: bool = False) -> Disciplines:
    """Files of disciplines as one. Refusal 2 for none, and as ``load_file``."""
    read = [load_file(path, allow_unresolved=allow_unresolved) for path in paths]
    if not read:
        raise Refusal(ExitCode.USAGE, "judge: name a file of disciplines with --disciplines FILE")
    return merged(read)


def load_file(path: Path, *, allow_unresolved: bool = False) -> Disciplines:
    """A file of disciplines. Refusal 2 where it cannot be read, and for what is wrong in it."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Refusal(
            ExitCode.USAGE, f"{path}: {error.strerror}: name a file of disciplines"
        ) from error
    return load_disciplines(content, str(path), allow_unresolved=allow_unresolved)


# Sessions ------------------------------------------------------------------------------------


def _sessions(
    loaded: Disciplines, directory: Path, trees: list[Path], log: Path | None, as_json: bool
) -> None:
    require_trees(trees)
    batch = judge_batch(directory, loaded, trees)
    encoded = encode_verdicts(batch)
    if (directory / "sessions").is_dir():
        write_durable(directory / RECORD, encoded)
        write_durable(log or directory / LOG, log_of(batch).encode())
    elif log is not None:
        write_durable(log, log_of(batch).encode())
    if as_json:
        sys.stdout.buffer.write(encoded)
        return
    _print_batch(batch)


def require_trees(trees: Iterable[Path]) -> None:
    """Refuse (2) a tree that is none."""
    for tree in trees:
        if not tree.is_dir():
            raise Refusal(ExitCode.USAGE, f"--corpus {tree}: is no directory")


def _print_batch(batch: BatchVerdicts) -> None:
    table = Table("discipline", "tier", "arm", "broken", "of", "95 %", "not judged", box=None)
    for rate in rates_by_arm(batch):
        table.add_row(
            one_line(rate.discipline),
            one_line(rate.tier),
            one_line(rate.arm),
            str(rate.broken),
            str(rate.judged),
            _interval(rate),
            _others(rate),
        )
    print_table(table)
    for session in batch.sessions:
        if session.not_judged is not None:
            print(one_line(f"{session.session}: not judged: {session.not_judged}"))
        for path in session.unproven:
            print(one_line(f"{session.session}: {path}: unproven, its replay is not what was left"))
        for verdict in session.verdicts:
            if verdict.message is not None:
                where = "whole session" if verdict.call is None else f"call {verdict.call}"
                said = f"{session.session}: {where}: {verdict.event}: {verdict.message}"
                print(one_line(said))


def _interval(rate: Rate) -> str:
    if rate.low is None or rate.high is None:
        return "-"
    return f"{100 * rate.low:.1f} to {100 * rate.high:.1f}"


def _others(rate: Rate) -> str:
    parts = (
        (rate.unjudgeable, "unjudgeable"),
        (rate.skipped, "skipped"),
        (rate.untouched, "out of scope"),
        (rate.not_judged, "refused"),
    )
    return ", ".join(f"{count} {what}" for count, what in parts if count) or "-"


# A repository --------------------------------------------------------------------------------


def _git(
    loaded: Disciplines,
    what: str,
    repository: Path,
    enforce: str | None,
    log: Path | None,
    as_json: bool,
) -> int:
    if enforce not in (None, "block", "advise"):
        raise Refusal(ExitCode.USAGE, f"--enforce {enforce}: is neither block nor advise")
    level: Level | None = None if enforce is None else "block" if enforce == "block" else "advise"
    worlds = collect(repository, what).worlds()
    surface = git_surface(level)
    protected = change_verdict(loaded.protected, (world.subject for world in worlds), surface)
    found = (
        *((protected,) if protected is not None else ()),
        *verdicts_of(loaded.entries, worlds, surface),
    )
    rows = [row_of(time.time() * 1000, verdict) for verdict in found]
    _write_rows(log or repository / FOLDER / LOG, rows)
    if as_json:
        print(json.dumps([_as_record(verdict) for verdict in found], ensure_ascii=False))
    else:
        for each in rows:
            print(visible(each))
    _say(found)
    return BLOCKED if any(verdict.event == "blocked" for verdict in found) else 0


def _as_record(verdict: Verdict) -> dict[str, object]:
    return {
        "discipline": verdict.entry,
        "event": verdict.event,
        "subject": verdict.subject,
        "skip": verdict.skip,
        "message": verdict.message,
    }


def _say(found: Iterable[Verdict]) -> None:
    for verdict in found:
        if verdict.message is not None and verdict.event != "witnessed":
            print(one_line(verdict.message), file=sys.stderr)


# A call --------------------------------------------------------------------------------------


def _hook(paths: list[Path], repository: Path | None, log: Path | None) -> int:
    """Exit 2 where a call is blocked, or where nothing can say whether it is; else 0."""
    now_ms = round(time.time() * 1000)
    where = log or (repository or Path()) / FOLDER / LOG
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
        payload = read_payload(text, repository)
        where = log or Path(payload.root) / FOLDER / LOG
        loaded = load(paths, allow_unresolved=True)
    except (PayloadError, UnicodeDecodeError) as error:
        return _refused_hook(where, now_ms, f"the payload {error}")
    except Refusal as refusal:
        return _refused_hook(where, now_ms, "; ".join(refusal.reasons))
    for fault in loaded.faults:
        print(one_line(f"recorder: {fault}: skipped"), file=sys.stderr)
    protected = protection_verdict(loaded.protected, payload.tool, payload.arguments)
    found = (
        *((protected,) if protected is not None else ()),
        *verdicts_of(loaded.entries, worlds_of(payload, now_ms), HOOK),
    )
    _write_rows(where, [row_of(now_ms, verdict) for verdict in found], must=False)
    _say(found)
    return HOOK_BLOCKED if any(verdict.event == "blocked" for verdict in found) else 0


def _refused_hook(where: Path, now_ms: int, why: str) -> int:
    """One row that says so, and the call is blocked: nothing judged it."""
    verdict = Verdict("judge", "blocked", "-", unjudgeable=why)
    _write_rows(where, [row_of(now_ms, verdict)], must=False)
    print(f"recorder: {one_line(why)}", file=sys.stderr)
    return HOOK_BLOCKED


def _write_rows(path: Path, rows: list[str], *, must: bool = True) -> None:
    """Append rows. The folder is git's to ignore; a log that fails changes no verdict."""
    if not rows:
        return
    try:
        if path.parent.name == FOLDER and not path.parent.exists():
            path.parent.mkdir(mode=0o755, parents=True)
            (path.parent / ".gitignore").write_text("*\n", "utf-8")
        _append(path, "".join(f"{each}\n" for each in rows).encode())
    except OSError as error:
        if must:
            raise
        print(f"recorder: {path}: no row was written: {error.strerror}", file=sys.stderr)


def _append(path: Path, data: bytes) -> None:
    """Append; in the folder of our own to a plain file alone, because whoever wrote the repository
    or runs in it can have put a link or a pipe there."""
    if path.parent.name != FOLDER:
        with path.open("ab") as file:
            file.write(data)
        return
    if path.parent.is_symlink():
        raise OSError(errno.ELOOP, "is a link", str(path.parent))
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with open(os.open(path, flags, 0o644), "ab") as own:  # noqa: PTH123
        if not stat.S_ISREG(os.fstat(own.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is no plain file", str(path))
        own.write(data)


# Explanation ---------------------------------------------------------------------------------


def _explain(loaded: Disciplines, as_json: bool) -> None:
    lines = explanation(loaded)
    if as_json:
        print(msgspec.json.encode(lines).decode())
        return
    table = Table("entry", "enforce", "mechanism", "session", "git", "hook", box=None)
    for line in lines:
        table.add_row(
            one_line(line.id), line.enforce, line.mechanism, line.session, line.git, line.hook
        )
    print_table(table)
    print("An entry without `enforce` advises. What breaks is said on standard error.")
