"""The check behind findings: what a corpus declares, run in a container over what a session left.

The command's own files come from the baseline, so a session that rewrote them in its workspace
changes nothing of what is reported.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from docker.errors import DockerException
from requests.exceptions import RequestException

from recorder.engine.client import Engine
from recorder.evidence.document import CheckRecord
from recorder.refusal import ExitCode, Refusal
from recorder.session.check import BASELINE, Program, ProgramEnd, Tree, could_not_run, run_program
from recorder.session.container import SESSION_UID
from recorder.session.harness import WORKSPACE
from recorder.transform.findings import Findings, FindingsError, read_findings
from recorder.workspace.manifest import digest_of
from recorder.workspace.packing import Placed, pack

RESULT_CODES = frozenset({0, 1})
"""The exit codes of a check that came to its result: it found nothing, or something."""
NOT_FOUND_CODES = frozenset({126, 127})
"""What ``env`` and every shell end with where they could not run a program."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """A check as it is to be run. ``command`` holds ``{workspace}``, and ``{baseline}`` where its
    own files are in the corpus.

    ``baseline`` is the present tree of the corpus, None where there is none to take tools from,
    and ``digest`` names it. ``over`` says what is checked: the session's ``workspace``, or the
    ``corpus``: one copy of the baseline that holds everything the session changed.
    """

    command: tuple[str, ...]
    baseline: Path | None
    digest: str
    over: str = "workspace"
    seconds: float = 120.0

    @property
    def identity(self) -> str:
        """The digest of all that decides what it reports: its words, what it reads, its tools."""
        return digest_of(json.dumps([self.command, self.over, self.digest]).encode())


@dataclass(frozen=True)
class CheckEnd:
    """What became of a check. ``findings`` is None where it could not run: ``refusal`` says why."""

    record: CheckRecord
    findings: Findings | None
    refusal: Refusal | None


def patched(
    tree: Path, *, changed: Iterable[Placed] = (), removed: Collection[bytes] = frozenset()
) -> Tree:
    """A tree with what a session changed put over it, and without what it removed."""
    over = tuple(changed)
    without = frozenset(removed) | {placed.path for placed in over}
    prefix = WORKSPACE.strip("/")
    return lambda uid: pack(tree, uid, uid, prefix=prefix, without=without, over=over)


def run_check(
    engine: Engine,
    image: str,
    check: Check,
    tree: Tree,
    *,
    name: str,
    labels: Mapping[str, str],
    uid: int = SESSION_UID,
) -> CheckEnd:
    """Run a check over a tree, once; what it reported, or why that is not known (13)."""
    baseline = check.baseline
    trees = [tree]
    if baseline is not None:
        prefix = BASELINE.strip("/")
        trees.append(lambda owner: pack(baseline, owner, owner, prefix=prefix))
    program = Program(
        argv=program_of(check.command),
        trees=tuple(trees),
        environment={"RECORDER_WORKSPACE": WORKSPACE, "RECORDER_BASELINE": BASELINE},
        seconds=check.seconds,
    )
    try:
        end = run_program(engine, image, program, name=name, labels=labels, uid=uid)
    except (DockerException, RequestException, OSError, Refusal) as error:
        if isinstance(error, Refusal) and error.code != ExitCode.MISSING:
            # A container that is not confined: no failure of the engine's.
            raise
        # The session that is checked has ended and may have spent: its stream and its evidence
        # are kept with the reason, which an exception that ends the driver would lose.
        end = ProgramEnd(None, False, b"", b"", f"the engine failed: {error}")
    return ended(check, end)


def program_of(command: Iterable[str]) -> tuple[str, ...]:
    """The words of a command with the two trees where they lie, its program by a whole path.

    A program without a slash is one of the image and looked up there, by ``env``.
    """
    words = [
        word.replace("{workspace}", WORKSPACE).replace("{baseline}", BASELINE) for word in command
    ]
    return tuple(words) if words[0].startswith("/") else ("/usr/bin/env", "--", *words)


def ended(check: Check, end: ProgramEnd) -> CheckEnd:
    """What a check's end says. Its exit code alone is no result, nor is what it printed alone."""
    findings: Findings | None = None
    fault = end.fault
    ran = end.exit_code is not None and end.exit_code not in NOT_FOUND_CODES
    if not fault and not ran:
        fault = "its program could not be run"
    if not fault and end.exit_code not in RESULT_CODES:
        fault = f"it exited {end.exit_code}, and 0 or 1 is how a check ends that came to a result"
    if not fault:
        try:
            findings = read_findings(end.stdout, WORKSPACE)
        except FindingsError as error:
            fault = str(error)
    record = CheckRecord(
        command=check.command,
        over=check.over,
        baseline=check.digest,
        exit_code=end.exit_code if ran else None,
        timed_out=end.timed_out,
        findings=None if findings is None else findings.count,
        fault=fault or None,
    )
    refusal = could_not_run(f"the check `{' '.join(check.command)}`", end, fault) if fault else None
    return CheckEnd(record, findings, refusal)


def not_run(check: Check) -> CheckRecord:
    """The record of a check that had nothing to read: no artifact in the workspace."""
    return CheckRecord(
        command=check.command,
        over=check.over,
        baseline=check.digest,
        exit_code=None,
        timed_out=False,
        findings=None,
        fault=None,
    )


def require_workspace_named(command: Iterable[str], where: str) -> None:
    """Refuse (2) a command that does not say where what it checks lies."""
    if not any("{workspace}" in word for word in command):
        raise Refusal(
            ExitCode.USAGE,
            f"{where}: names no {{workspace}}, which is where the tree to be checked lies",
        )
