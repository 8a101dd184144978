"""One session's files as the view of it. Pure.

It reads what is there: a session that was refused, that never ended, or whose files are broken has
a view too, which says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import UNSET

from recorder.disciplines.sessions import SessionVerdicts
from recorder.plain_file import decode
from recorder.refusal import Refusal
from recorder.report.difference import difference
from recorder.report.judged import breaks_of, events_of, marked, strangers
from recorder.report.limits import Limits
from recorder.report.timeline import Log, calls_of, read_log, read_stream, requests_of
from recorder.report.view import Fact, FileView, Outcome, SessionView
from recorder.report.visible import one_line, visible
from recorder.stream.observation import Observation, observe
from recorder.transcript.checker import Checked, check
from recorder.transcript.contract import Event

# A session that ran again keeps its earlier directory beside it under such a name.
_ATTEMPT = re.compile(r"\.attempt-\d+\Z")
_FINDING_LINE = re.compile(r"line (\d+)\b")


@dataclass(frozen=True)
class Slot:
    """Where a session stands in its batch; ``line`` is 0 for one of no batch."""

    name: str
    line: int = 0
    tier: str = ""
    arm: str = ""
    probe: str = ""
    repetition: int = 0


@dataclass(frozen=True)
class SessionFiles:
    """A session's directory. None for a file that is not there; ``kept`` gives a copy by digest.

    ``before`` gives the arm's text of a path, None where it is not kept.
    ``unreadable``: names of files that are there and could not be read, with why.
    """

    started: bool
    evidence: bytes | None
    record: bytes | None
    raw: bytes | None
    egress: bytes | None
    kept: Callable[[str], bytes | None]
    unreadable: tuple[str, ...] = ()
    before: Callable[[str], bytes | None] = lambda _: None


@dataclass
class Shared:
    """Texts and commands that many sessions have in common, each once."""

    texts: list[str] = field(default_factory=list)
    commands: list[tuple[str, ...]] = field(default_factory=list)
    _texts: dict[str, int] = field(default_factory=dict)
    _commands: dict[tuple[str, ...], int] = field(default_factory=dict)

    def text(self, text: str) -> int:
        if text not in self._texts:
            self._texts[text] = len(self.texts)
            self.texts.append(text)
        return self._texts[text]

    def command(self, command: tuple[str, ...]) -> int:
        if command not in self._commands:
            self._commands[command] = len(self.commands)
            self.commands.append(command)
        return self._commands[command]


class _Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The members that a report reads. What an earlier recorder did not write has a default."""

    recorder: str = ""
    probe: str = ""
    session: str = ""
    tier: str = ""
    arm: str = ""
    rehearsal: bool | None = None
    argv: tuple[str, ...] = ()
    attach: Mapping[str, Any] = {}
    ended: str = ""
    exit_status: int | None = None
    guard: Mapping[str, Any] | None = None
    harness_version: str | None = None
    sidecar: Mapping[str, Any] = {}
    session_container: Mapping[str, Any] = {}
    sidecar_container: Mapping[str, Any] = {}
    counts: Mapping[str, Any] = {}
    workspace: Mapping[str, Any] | None = None
    egress: Mapping[str, Any] = {}
    corroboration: Mapping[str, Any] | None = None
    check: Mapping[str, Any] | None = None
    disciplines: Mapping[str, Any] | None = None
    seconds: Mapping[str, float | None] = {}
    max_turns: int | None = None
    capped: bool = False
    arm_delta: tuple[str, ...] = ()
    not_enforced: tuple[str, ...] = ()
    refusal: Mapping[str, Any] | None = None


def session_view(
    files: SessionFiles,
    slot: Slot,
    shared: Shared,
    limits: Limits,
    *,
    examined: frozenset[str] = frozenset(),
    judged: SessionVerdicts | None = None,
) -> SessionView:
    """The view of one session. ``examined``: digests of the documents its probe examines;
    ``judged``: what disciplines found in it."""
    faults = list(files.unreadable)
    evidence = _evidence(files.evidence, faults)
    checked = _checked(files.record, evidence, faults)
    event = checked.events[0] if checked is not None and checked.events else None
    faults += _strays(slot, evidence, event)
    log = None if files.egress is None else read_log(files.egress)
    if log is not None:
        faults += [f"egress.jsonl, {fault}" for fault in log.faults]
    elif evidence is not None:
        faults.append("egress.jsonl: is absent, so nothing says what left")
    observation = None if files.raw is None else observe([files.raw])
    stream = None if files.raw is None else read_stream(files.raw)
    started = evidence.guard.get("started") if evidence and evidence.guard else None
    zero = float(started) if isinstance(started, int | float) else None
    if zero is None:
        zero = min(stream.stamps.values(), default=0.0) if stream is not None else 0.0
    results = _results(event, observation)
    calls = (
        calls_of(
            observation,
            stream,
            log,
            results=results,
            findings=_findings(evidence),
            zero=zero,
            argument_limit=limits.argument,
        )
        if observation is not None and stream is not None
        else ()
    )
    requests = requests_of(log.lines, zero) if log is not None else ()
    why = None if judged is None else judged.not_judged or strangers(judged, observation)
    breaks = () if judged is None or why is not None else breaks_of(judged)
    answer = UNSET if event is None else event.answer
    reasons = (evidence.refusal or {}).get("reasons", ()) if evidence else ()
    rehearsal = evidence.rehearsal if evidence else None
    if observation is not None and observation.rehearsal:
        rehearsal = True
    dollars = _dollars(evidence, observation)
    session_seconds = evidence.seconds.get("session") if evidence else None
    result = observation.result if observation is not None else None
    return SessionView(
        name=one_line(slot.name),
        line=slot.line,
        probe=one_line((evidence.probe if evidence else "") or slot.probe),
        tier=one_line((evidence.tier if evidence else "") or slot.tier),
        arm=one_line((evidence.arm if evidence else "") or slot.arm),
        repetition=slot.repetition,
        rehearsal=rehearsal,
        outcome=_outcome(files, evidence, checked),
        code=_code(evidence),
        reasons=tuple(one_line(str(reason)) for reason in reasons),
        answer_known=answer is not UNSET,
        answer=one_line(answer) if isinstance(answer, str) else None,
        dollars=dollars,
        seconds=None if session_seconds is None else round(session_seconds, 2),
        turns=result.turns if result is not None else None,
        call_count=None if observation is None else len(observation.calls),
        allowed=None if log is None else sum(r.outcome == "allowed" for r in requests),
        refused=None if log is None else sum(r.outcome != "allowed" for r in requests),
        opened=None
        if not examined or results is None
        else any(digest in examined for digest in results),
        calls=marked(calls, breaks),
        requests=requests,
        files=_files(event, evidence, files, limits),
        left=tuple(_left(evidence)),
        facts=tuple(_facts(evidence, observation, log, checked)),
        faults=tuple(one_line(fault) for fault in faults),
        statements=tuple(shared.text(text) for text in _statements(files.record)),
        command=shared.command(tuple(visible(part) for part in evidence.argv))
        if evidence and evidence.argv
        else None,
        verdicts=None if judged is None or why is not None else events_of(judged),
        not_judged=one_line(why or ""),
        breaks=breaks,
    )


def _evidence(data: bytes | None, faults: list[str]) -> _Evidence | None:
    if data is None:
        return None
    try:
        return decode(data, _Evidence)
    except msgspec.MsgspecError as error:
        faults.append(f"evidence.json: is not the evidence of a session: {error}")
        return None


def _checked(record: bytes | None, evidence: _Evidence | None, faults: list[str]) -> Checked | None:
    if record is None:
        if evidence is not None and evidence.refusal is None:
            faults.append("record.md: is missing, and evidence.json says that the session recorded")
        return None
    try:
        checked = check(record.decode("utf-8"), "record.md")
    except UnicodeDecodeError as error:
        faults.append(f"record.md: is not UTF-8 (byte {error.start + 1})")
        return None
    except Refusal as refusal:
        faults += refusal.reasons
        return None
    return checked


def is_earlier_attempt(name: str) -> bool:
    """Whether a directory is what an attempt left of a session that ran again."""
    return _ATTEMPT.search(name) is not None


def _strays(slot: Slot, evidence: _Evidence | None, event: Event | None) -> Iterator[str]:
    """Files that say they are another session's."""
    own = _ATTEMPT.sub("", slot.name)
    for name, said in (
        ("evidence.json", evidence.session if evidence else None),
        ("record.md", event.session if event else None),
    ):
        if said is not None and said != own:
            yield f"{name}: is of session {said} and not of {own}"


def _outcome(files: SessionFiles, evidence: _Evidence | None, checked: Checked | None) -> Outcome:
    if evidence is None:
        if files.evidence is not None:
            return "unreadable"
        return "unfinished" if files.started or files.raw is not None else "not run"
    if evidence.refusal is not None:
        return "refused"
    if checked is None:
        return "unreadable"
    return "capped" if evidence.capped else "recorded"


def _code(evidence: _Evidence | None) -> int | None:
    if evidence is None:
        return None
    if evidence.refusal is None:
        return 0
    code = evidence.refusal.get("code")
    return code if isinstance(code, int) else None


def _results(event: Event | None, observation: Observation | None) -> tuple[str, ...] | None:
    """The record's digests, where it holds the calls that the stream shows."""
    if event is None or event.calls is UNSET or observation is None:
        return None
    recorded = tuple((call.tool, call.argument) for call in event.calls)
    if recorded != tuple((call.tool, call.argument) for call in observation.calls):
        return None
    return tuple(call.result for call in event.calls)


def _findings(evidence: _Evidence | None) -> dict[int, str]:
    """The witnesses' disagreements by the line of the stream that each is about."""
    found: dict[int, str] = {}
    for finding in (evidence.corroboration or {}).get("findings", ()) if evidence else ():
        line = _FINDING_LINE.match(str(finding))
        if line is not None:
            found.setdefault(int(line.group(1)), str(finding))
    return found


def _dollars(evidence: _Evidence | None, observation: Observation | None) -> float | None:
    """The harness's own figure: as the evidence holds it, else as the result line does."""
    cost = (evidence.corroboration or {}).get("cost", {}) if evidence else {}
    stated = cost.get("harness")
    if stated is None and observation is not None and observation.result is not None:
        stated = observation.result.cost_dollars
    try:
        return None if stated is None else float(stated)
    except (TypeError, ValueError):
        return None


def _files(
    event: Event | None, evidence: _Evidence | None, files: SessionFiles, limits: Limits
) -> tuple[FileView, ...] | None:
    workspace = evidence.workspace if evidence else None
    kinds: dict[str, str] = {}
    for kind in ("added", "changed"):
        kinds |= {str(path): kind for path in (workspace or {}).get(kind) or ()}
    if event is None:
        if workspace is None:
            return None
        why = "no record says which kept copy this is"
        return tuple(_unseen(one_line(path), kind, "", why) for path, kind in sorted(kinds.items()))
    if event.produced is UNSET:
        return None
    return tuple(
        _file(
            artifact.path, kinds, artifact.result, artifact.cites, artifact.findings, files, limits
        )
        for artifact in event.produced
    )


def _file(
    path: str,
    kinds: Mapping[str, str],
    digest: str,
    cites: Sequence[str],
    findings: Any,
    files: SessionFiles,
    limits: Limits,
) -> FileView:
    kind = kinds.get(path, "named")
    shown = one_line(path)
    content = files.kept(digest) if digest else None
    if content is None:
        why = "no copy of it is kept" if digest else "nothing is there under this name"
        view = _unseen(shown, kind, digest, why)
    else:
        before = files.before(path) if kind == "changed" else None
        found = difference(before, content, limits.difference, is_new=kind == "added")
        view = FileView(
            path=shown,
            kind=kind,
            digest=digest,
            cites=(),
            findings=None,
            diff=found.lines,
            cut=found.cut,
            why=found.why,
            added=found.added,
            removed=found.removed,
        )
    return msgspec.structs.replace(
        view,
        cites=tuple(one_line(cite) for cite in cites),
        findings=None if findings is UNSET else tuple(one_line(finding) for finding in findings),
    )


def _unseen(path: str, kind: str, digest: str, why: str) -> FileView:
    return FileView(
        path=path, kind=kind, digest=digest, cites=(), findings=None, diff=None, cut=0, why=why
    )


def _left(evidence: _Evidence | None) -> Iterator[Fact]:
    """What else became of the workspace: removed, a mode changed, named and not read."""
    workspace = (evidence.workspace if evidence else None) or {}
    for name in ("removed", "mode_changed"):
        for path in workspace.get(name) or ():
            yield Fact(name.replace("_", " "), one_line(str(path)))
    for name in ("excluded", "left", "not_read"):
        for item in workspace.get(name) or ():
            why = one_line(str(item.get("why", "")))
            yield Fact(name.replace("_", " "), f"{one_line(str(item.get('path', '')))}: {why}")
    if workspace.get("stopped"):
        yield Fact("stopped reading", one_line(str(workspace["stopped"])))


def _statements(record: bytes | None) -> Iterator[str]:
    """The paragraphs of a record, outside its headings and its blocks."""
    if record is None:
        return
    paragraph: list[str] = []
    fenced = False
    for line in [*record.decode("utf-8", "replace").splitlines(), ""]:
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and line.strip() and not line.startswith("#"):
            paragraph.append(line)
            continue
        if paragraph:
            yield visible(" ".join(paragraph))
            paragraph = []


def _facts(
    evidence: _Evidence | None,
    observation: Observation | None,
    log: Log | None,
    checked: Checked | None,
) -> Iterator[Fact]:
    """What was measured and pinned, in the order in which a reader asks."""
    for name, value in _raw_facts(evidence, observation, log, checked):
        if value not in (None, "", "None"):
            yield Fact(name, one_line(str(value)))


def _raw_facts(
    evidence: _Evidence | None,
    observation: Observation | None,
    log: Log | None,
    checked: Checked | None,
) -> Iterator[tuple[str, Any]]:
    if checked is not None:
        yield "model", checked.identity.model
        yield "served version", checked.identity.served_version
        yield "recorded on", checked.identity.at
    if evidence is None:
        return
    counts, guard = evidence.counts, evidence.guard or {}
    yield "ended", _ended(evidence)
    yield "harness", f"Claude Code {evidence.harness_version}" if evidence.harness_version else None
    yield "recorder", evidence.recorder
    yield "turn cap", evidence.max_turns
    yield "stream", _counted(counts, "lines", "lines") + ", " + _counted(counts, "bytes", "bytes")
    if observation is not None and observation.first_bad_line is not None:
        bad = observation.first_bad_line
        yield "first bad line", f"{bad.number} {bad.kind.value}"
    hooks = counts.get("hook_events") or {}
    yield "hooks", ", ".join(f"{count} of {name}" for name, count in sorted(hooks.items()))
    yield "witnesses", _witnesses(evidence.corroboration)
    alone = (evidence.corroboration or {}).get("only_at_provider") or {}
    yield "only at the provider", ", ".join(f"{n} {why}" for why, n in sorted(alone.items()))
    foreign = (evidence.corroboration or {}).get("foreign") or ()
    yield (
        "foreign requests",
        ", ".join(
            f"{item.get('request')} ({item.get('model')}{', USED' if item.get('used') else ''})"
            for item in foreign
        ),
    )
    cost = (evidence.corroboration or {}).get("cost") or {}
    yield "cost, the harness's figure", _dollar_text(cost.get("harness"))
    yield f"cost, prices of {cost.get('table_date')}", _dollar_text(cost.get("table"))
    check = evidence.check
    if check is not None:
        yield "check", " ".join(check.get("command", ()))
        found = check.get("findings")
        yield "findings", check.get("fault") or ("nothing to check" if found is None else found)
    judged = evidence.disciplines
    if judged is not None:
        yield "disciplines behind findings", judged.get("file")
        yield "entries broken", judged.get("findings")
    yield "egress policy", evidence.egress.get("policy")
    yield (
        "sidecar",
        f"mitmproxy {evidence.sidecar['mitmproxy']}" if ("mitmproxy" in evidence.sidecar) else None,
    )
    if log is not None:
        yield "egress log", "whole" if not log.faults else f"{len(log.faults)} faults"
    yield "session image", evidence.session_container.get("Image")
    yield "sidecar image", evidence.sidecar_container.get("Image")
    host = evidence.session_container.get("HostConfig")
    if isinstance(host, dict):
        yield "network of the container", host.get("NetworkMode")
    yield "limits not enforced", ", ".join(evidence.not_enforced)
    yield "arm removes", ", ".join(evidence.arm_delta)
    if "peak_kib" in guard:
        yield "peak memory", f"{guard['peak_kib'] / 1024:.0f} MiB"
    if "cpu_seconds" in guard:
        yield "processor time", f"{guard['cpu_seconds']:.2f} s"
    yield (
        "times",
        ", ".join(
            f"{name.replace('_', ' ')} {value:.2f} s"
            for name, value in evidence.seconds.items()
            if isinstance(value, int | float)
        ),
    )


def _ended(evidence: _Evidence) -> str:
    how = {
        "harness": "by itself",
        "deadline": "killed at its deadline",
        "disk": "killed: too little disk was free",
        "sidecar": "killed: its sidecar ended first",
        "halted": "killed: the driver was told to end",
        "stream": "the stream broke",
    }.get(evidence.ended, evidence.ended)
    status = "" if evidence.exit_status is None else f", exit status {evidence.exit_status}"
    return f"{how}{status}{', at its turn cap' if evidence.capped else ''}"


def _witnesses(record: Mapping[str, Any] | None) -> str | None:
    if record is None:
        return "not joined"
    said = (
        f"{record.get('corroborated')} of {record.get('blocks')} blocks given by the provider, "
        f"{record.get('results')} results told back"
    )
    disagreements = len(record.get("findings") or ())
    return f"{said}; {disagreements} disagreements" if disagreements else f"agree: {said}"


def _counted(counts: Mapping[str, Any], name: str, noun: str) -> str:
    value = counts.get(name)
    return f"{value:,} {noun}" if isinstance(value, int) else f"{noun} not counted"


def _dollar_text(value: object) -> str | None:
    return None if value is None else f"${float(str(value)):.4f}"
