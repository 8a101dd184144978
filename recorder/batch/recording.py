"""One session from its order to its files: run, check, transform, write down.

The steps and the order of what refuses a session after it ran are the contract's: the harness's
own failure (10), then the init line (12), then a stream that is no whole observation (13), then
witnesses that disagree (14). What was recorded up to a refusal is kept, and evidence.json says
which refusal it was.
"""

from __future__ import annotations

import datetime
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import msgspec

from recorder import __version__
from recorder.batch.before import keep_texts
from recorder.batch.checking import Check, CheckEnd, not_run, patched, run_check
from recorder.disciplines.artifacts import (
    ArtifactFindings,
    artifact_findings,
    artifacts_of,
    findings_record,
    other_files,
)
from recorder.disciplines.declaration import Disciplines
from recorder.disciplines.sessions import kept_content, tree_of
from recorder.durable import write_durable
from recorder.engine.client import Engine
from recorder.evidence.corroboration import corroborate
from recorder.evidence.corroboration_record import record_of, require_agreement
from recorder.evidence.counting import counts_of
from recorder.evidence.document import (
    SCHEMA,
    Attach,
    CheckRecord,
    CorroborationRecord,
    CredentialRecord,
    DisciplinesRecord,
    Egress,
    Evidence,
    Left,
    RefusalRecord,
    Workspace,
    encode_evidence,
    masked,
)
from recorder.evidence.egress import EgressSummary, phrase, summarise
from recorder.evidence.pricing import PriceTable, rates_as_text, shipped_prices
from recorder.evidence.prose import statements
from recorder.plan.composition import IdentityMembers
from recorder.refusal import ExitCode, Refusal
from recorder.session.attach import ATTACH_QUERY
from recorder.session.credentials import holders, placeholder_of, require_lasting
from recorder.session.driver import Order, Session, Watched
from recorder.session.harness import (
    CONFIGURATION_DIRECTORY,
    TASK_LIMIT,
    WORKSPACE,
    command_line,
    environment,
    pinned_routes,
)
from recorder.session.leftovers import (
    BATCH_LABEL,
    DIRECTORY_LABEL,
    DRIVER_LABEL,
    driver_identity,
    driver_name,
)
from recorder.session.sidecar import Credential, Upstream
from recorder.session.upstream import PROVIDER_HOST
from recorder.stream.init_check import all_init_faults
from recorder.stream.observation import Observation, observe
from recorder.stream.provider import ProviderMembers, Unknown, provider_members
from recorder.stream.whole import require_whole
from recorder.transcript.contract import Event, Identity
from recorder.transcript.writer import event_yaml, transcript_markdown
from recorder.transform.cites import DEFAULT_CITES_PATTERN, cites_in, compile_cites
from recorder.transform.event import build_event
from recorder.transform.produced import Places, ProducedFile, places_of, produced_paths
from recorder.workspace import archive
from recorder.workspace.archive import (
    ArchiveLimits,
    ArchiveReading,
    Keep,
    count_lines,
    read_archive,
)
from recorder.workspace.comparison import Changes, compare
from recorder.workspace.manifest import Manifest
from recorder.workspace.names import path_text
from recorder.workspace.packing import Placed, pack

READ_SIZE = 1 << 20
LOG_LINES_LIMIT = 1 << 20


@dataclass(frozen=True)
class Setting:
    """What every session of a driver shares. ``credential_of`` gives a session its credential.

    ``dollars`` is each session's bound, which its sidecar holds it to; None: no bound. ``policy``
    and ``prices`` are None for those that are shipped. ``batch`` is what the containers of one
    batch have in their label; empty for a session of none.
    """

    session_image: str
    sidecar_image: str
    upstream: Upstream
    credential_of: Callable[[str, str], Credential]
    rehearsal: bool
    model: str | None
    timeout: float
    host_skills: frozenset[str]
    not_enforced: tuple[str, ...] = ()
    disk_floor: int = 1 << 30
    dollars: Decimal | None = None
    policy: str | None = None
    prices: PriceTable | None = None
    batch: str = ""


@dataclass(frozen=True)
class Line:
    """What every session of one line shares: the arm's tree, and what the plan fixed.

    ``tree`` must stay until the line's last session has ended. ``servers``: the MCP servers that
    the corpus declares (one list of allowed tools for every arm); ``declared``: those that this
    arm's own ``.mcp.json`` declares, read before any session.
    """

    tier: str
    arm: str
    members: IdentityMembers
    tree: Path
    manifest: Manifest
    delta: tuple[str, ...]
    servers: tuple[str, ...]
    declared: frozenset[str]
    has_mcp_configuration: bool
    max_turns: int | None
    declared_delta: tuple[str, ...] = ()
    identifiers: str = DEFAULT_CITES_PATTERN
    check: Check | None = None
    disciplines: Disciplines | None = None


@dataclass(frozen=True)
class Job:
    """One session of a line. ``answers`` is None for a probe without a closed set.

    ``before``: where texts of the arm that a session changed are kept; None: nowhere.
    """

    line: Line
    probe: str
    task: str
    answers: tuple[str, ...] | None
    session: str
    directory: Path
    uid: int
    before: Path | None = None


@dataclass(frozen=True)
class Recorded:
    """A session's end: its event and identity, or the refusal that it met.

    ``dollars`` are the harness's own figure, None where it stated none; ``failure`` its own word
    for a failure; ``changes`` are None where the workspace was not read.
    """

    job: Job
    evidence: Evidence
    event: Event | None
    identity: Identity | None
    cost_cents: int | None
    answer: str | None
    refusal: Refusal | None
    dollars: Decimal | None = None
    failure: str | None = None
    changes: Changes | None = None

    @property
    def code(self) -> int:
        return ExitCode.DONE if self.refusal is None else self.refusal.code


class HaltedError(Exception):
    """A session was killed because its driver was told to end. What it left is kept, and it has
    no end: nothing says whether it would have been recorded."""


def open_session(engine: Engine, job: Job, setting: Setting) -> Session:
    """The session's order, its sidecar started.

    Refusal 2 for a task no command line can hold, 16 where too little disk is free to start.
    """
    line = job.line
    if len(job.task.encode()) > TASK_LIMIT:
        raise Refusal(
            ExitCode.USAGE,
            f"probe {job.probe}: its task is longer than the {TASK_LIMIT} bytes that one argument "
            "of a command line can hold: shorten it",
        )
    job.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    free = shutil.disk_usage(job.directory).free
    if free < setting.disk_floor:
        raise Refusal(
            ExitCode.CAP,
            f"session {job.session}: not started, because {free} bytes are free under "
            f"{job.directory} and {setting.disk_floor} are kept free: free some disk",
        )
    name = f"{driver_name()}-{job.session}"
    credential = setting.credential_of(job.probe, job.session)
    require_lasting(credential, f"session {job.session}", seconds=setting.timeout, now=time.time())
    placeholder = placeholder_of(credential)
    order = Order(
        name=name,
        session_image=setting.session_image,
        sidecar_image=setting.sidecar_image,
        argv=command_line(
            job.task,
            servers=line.servers,
            mcp_configuration=f"{WORKSPACE}/.mcp.json" if line.has_mcp_configuration else None,
            model=setting.model,
            max_turns=line.max_turns,
        ),
        environment=environment(placeholder, credential.form),
        workspace=lambda uid: pack(line.tree, uid, uid, prefix="workspace"),
        upstream=setting.upstream,
        credential=credential,
        placeholder=placeholder,
        labels={
            DRIVER_LABEL: driver_identity(),
            DIRECTORY_LABEL: str(job.directory),
            "recorder.session": job.session,
            **({BATCH_LABEL: setting.batch} if setting.batch else {}),
        },
        directory=job.directory,
        uid=job.uid,
        timeout=setting.timeout,
        disk_floor=setting.disk_floor,
        dollars=setting.dollars,
        policy=setting.policy,
        prices=rates_as_text(setting.prices or shipped_prices()),
    )
    session = Session(engine, order)
    try:
        session.prepare()
    except BaseException:
        session.remove()
        raise
    return session


def record(
    session: Session,
    job: Job,
    setting: Setting,
    *,
    before_start: Callable[[], None] | None = None,
    halt: threading.Event | None = None,
) -> Recorded:
    """Run an opened session to its end and write its files; its containers are gone after it.

    ``HaltedError`` where ``halt`` was set before its end.
    """
    try:
        watched = session.run(before_start, halt)
        if watched.ended == "halted":
            raise HaltedError
        reading, unread = _read_workspace(session, job)
        hook_lines = count_lines(session.log_directory(), suffix=b".jsonl")
    finally:
        session.remove()
    observation = observe(_chunks(job.directory / "raw.jsonl"))
    egress = _egress(job.directory / "egress.jsonl")
    corroboration = _corroboration(job, egress, setting.prices)
    changes = compare(job.line.manifest, reading) if reading is not None else None
    if changes is not None and job.before is not None:
        keep_texts(job.line.tree, job.line.manifest, changes.changed, job.before)
    places = places_of(observation, (WORKSPACE,), (CONFIGURATION_DIRECTORY,))
    digests = _document_digests(observation, places, reading)
    event: Event | None = None
    identity: Identity | None = None
    refusal: Refusal | None = None
    members = provider_members(observation)
    cost = None if isinstance(members.cost_cents, Unknown) else members.cost_cents
    checked: CheckRecord | None = None
    judged: DisciplinesRecord | None = None
    try:
        _refuse_copies(session, job)
        _refuse(watched, observation, egress, job, setting)
        if corroboration is not None:
            require_agreement(corroboration, f"session {job.session}")
        if reading is None or changes is None:
            raise unread or Refusal(ExitCode.OBSERVATION, f"session {job.session}: no workspace")
        produced = _produced(observation, places, changes, reading, job)
        if job.line.check is not None:
            end = _check(session.engine, job, setting, job.line.check, changes, produced)
            checked = end.record
            if end.refusal is not None:
                raise end.refusal
            if end.findings is not None and produced is not None:
                produced = tuple(map(end.findings.attach, produced))
        if job.line.disciplines is not None:
            broken = (
                None if produced is None else _broken(job, job.line.disciplines, changes, produced)
            )
            judged = findings_record(job.line.disciplines, broken)
            if broken is not None and produced is not None:
                produced = tuple(map(broken.attach, produced))
        event = build_event(
            observation,
            probe=job.probe,
            session=job.session,
            document_digest=lambda path: _digest_of(digests, reading, places.place(path)),
            produced=None
            if produced is None
            else tuple(replace(file, path=_text(file.path)) for file in produced),
            answers=job.answers,
        )
        if cost is None:
            raise Refusal(
                ExitCode.OBSERVATION,
                f"session {job.session}: its result line states no cost, so the identity's "
                "cost_cents would be a guess; see raw.jsonl",
            )
        identity = identity_of(job.line, members, cost)
    except Refusal as met:
        # What was recorded is kept and the refusal is part of it; the caller exits with its code.
        refusal = met
    evidence = _evidence(
        session,
        watched,
        observation,
        egress,
        corroboration,
        checked,
        judged,
        changes,
        digests,
        hook_lines,
        job,
        setting,
        refusal,
    )
    if event is not None and identity is not None and refusal is None:
        write_durable(job.directory / "event.yaml", event_yaml(event).encode())
        record_text = transcript_markdown(
            f"Session {job.session} of {job.probe}",
            {},
            identity,
            statements([evidence]),
            [event],
        )
        write_durable(job.directory / "record.md", record_text.encode())
    # Last of all: with it the session has its end, and everything else is there.
    write_durable(job.directory / "evidence.json", encode_evidence(evidence))
    answer = event.answer if event is not None and isinstance(event.answer, str) else None
    result = observation.result
    return Recorded(
        job,
        evidence,
        event,
        identity,
        cost,
        answer,
        refusal,
        dollars=None if result is None else result.cost_dollars,
        failure=failure_of(observation),
        changes=changes,
    )


def identity_of(line: Line, members: ProviderMembers, cost_cents: int) -> Identity:
    """A session's part of its line's identity, of today."""
    return Identity(
        model=members.model,
        served_version=members.served_version,
        tree=line.members.tree,
        lock=line.members.lock,
        selection=line.members.selection,
        read_set=line.members.read_set,
        seed=line.members.seed,
        harness=line.members.harness,
        tier=line.tier,
        arm=line.arm,
        at=datetime.datetime.now(datetime.UTC).date().isoformat(),
        cost_cents=cost_cents,
    )


def failure_of(observation: Observation) -> str | None:
    """The harness's own word for its failure; None where it did not fail, or said nothing."""
    result = observation.result
    if result is None or not result.is_error:
        return None
    cause = result.api_error_status or result.terminal_reason or result.subtype
    return None if cause is None else str(cause)


def _refuse_copies(session: Session, job: Job) -> None:
    """Refusal 12 where a session was given its credential itself and a file it left holds it."""
    credential = session.order.credential
    held = holders(credential.value, job.directory) if credential.copied else ()
    if held:
        names = ", ".join(str(path.relative_to(job.directory)) for path in held)
        raise Refusal(
            ExitCode.CONFINEMENT,
            f"session {job.session}: {names} in {job.directory} holds the credential that was "
            "copied in: remove it, have the token revoked, and use `credentials: claude`, which "
            "gives a session nothing of it",
        )


def _refuse(
    watched: Watched,
    observation: Observation,
    egress: EgressSummary | None,
    job: Job,
    setting: Setting,
) -> None:
    """Raise the one refusal of what a session shows after it ran, in the contract's order."""
    name = f"session {job.session}"
    stage = (watched.outcome or {}).get("stage")
    reason = (watched.outcome or {}).get("reason", "")
    match watched.ended:
        case "deadline":
            raise Refusal(
                ExitCode.HARNESS,
                f"{name}: killed at its deadline of {setting.timeout:g} s; see raw.jsonl for how "
                "far it came, or give it more with --timeout",
            )
        case "disk":
            raise Refusal(
                ExitCode.CAP,
                f"{name}: killed, because less than {setting.disk_floor} bytes were free under "
                f"{job.directory}: free some disk and record it again",
            )
        case "sidecar":
            raise Refusal(
                ExitCode.CONFINEMENT,
                f"{name}: its sidecar ended before it did, so it was killed; see egress.jsonl",
            )
        case "halted":
            raise HaltedError
        case "stream":
            raise Refusal(
                ExitCode.OBSERVATION,
                f"{name}: the attach stream broke inside a frame, so its end was not observed; "
                "record it again",
            )
        case "harness":
            pass
    if stage == "enter":
        raise Refusal(ExitCode.ENTER, f"{name}: could not enter {WORKSPACE}: {reason}")
    if stage == "forwarder":
        raise Refusal(
            ExitCode.CONFINEMENT,
            f"{name}: {reason}, so it had no way out and was ended; see raw.jsonl for how far it "
            "came, and record it again",
        )
    if stage != "harness":
        raise Refusal(
            ExitCode.CONFINEMENT,
            f"{name}: its guard did not run the harness ({stage or 'it left no outcome'}): "
            f"{reason or 'see stderr.log'}",
        )
    if egress is None or egress.faults:
        raise Refusal(
            ExitCode.CORRUPT,
            f"{name}: its egress log is not whole: "
            f"{egress.faults[0] if egress else 'the sidecar left none'}",
        )
    status = watched.exit_status
    if status != 0 and egress.bound is not None:
        raise Refusal(
            ExitCode.CAP,
            f"{name}: had used up {egress.bound.said}, so its sidecar let nothing more of it out "
            f"({egress.bound.refused} requests refused); it spent {_spent(job)}, of which the last "
            "answer may be over a bound: record it again with a higher one",
        )
    if status != 0 and not observation.capped:
        raise Refusal(
            ExitCode.HARNESS, _harness_failure(name, status, observation, egress, job.directory)
        )
    faults = all_init_faults(
        observation,
        declared_servers=job.line.declared,
        host_skills=setting.host_skills,
        configuration_directory=CONFIGURATION_DIRECTORY,
    )
    if faults:
        if not observation.inits:
            bad = observation.first_bad_line
            what = (
                "the harness printed nothing"
                if observation.line_count == 0
                else f"line {bad.number} {bad.kind.value}"
                if bad is not None
                else f"{observation.line_count} lines and none of them an init line"
            )
            faults = (f"its stream holds no init line ({what}), so nothing states what it loaded",)
        raise Refusal(ExitCode.CONFINEMENT, *(f"{name}: {fault}" for fault in faults))
    require_whole(observation, need_result=True, name=f"{name}, raw.jsonl")


def _spent(job: Job) -> str:
    """What a session's sidecar counted, by the last line of its log, which was found whole."""
    *_, last = (job.directory / "egress.jsonl").read_bytes().splitlines()
    used = msgspec.json.decode(last).get("used") or {}
    dollars = used.get("dollars")
    return "an unknown amount" if dollars is None else f"{dollars} dollars by the price table"


def _harness_failure(
    name: str,
    status: int | None,
    observation: Observation,
    egress: EgressSummary,
    directory: Path,
) -> str:
    said = "left no exit status" if status is None else f"exited {status}"
    result = observation.result
    why = ""
    if result is not None and result.is_error:
        cause = result.api_error_status or result.terminal_reason or result.subtype or "an error"
        why = f" (its result line says {cause})"
    asked = f"{phrase(egress.allowed, 'allowed')}, and {phrase(egress.refused, 'refused')}"
    return (
        f"{name}: the harness {said}{why}; its proxy {asked}; "
        f"see stderr.log and raw.jsonl in {directory}"
    )


def _read_workspace(session: Session, job: Job) -> tuple[ArchiveReading | None, Refusal | None]:
    line = job.line
    keep = Keep(directory=job.directory / "produced", before=line.manifest, arm=line.tree)
    try:
        return (
            read_archive(
                session.workspace(), prefix="workspace", keep=keep, limits=_limits(line.manifest)
            ),
            None,
        )
    except Refusal as met:
        # A session that spent is never lost for its workspace: the stream is kept and judged
        # first, and this refusal stands where no other does.
        return None, met


def _limits(before: Manifest) -> ArchiveLimits:
    """The tree that every session gets is read whatever its size; the limits are on what is new."""
    base = ArchiveLimits()
    sizes = [entry.size for entry in before.entries]
    return ArchiveLimits(
        file_bytes=max((base.file_bytes, *sizes)),
        total_bytes=base.total_bytes + sum(sizes),
        files=base.files + len(sizes),
        skipped_bytes=base.skipped_bytes,
    )


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(READ_SIZE):
            yield chunk


def _egress(path: Path) -> EgressSummary | None:
    try:
        return summarise(path.read_bytes())
    except FileNotFoundError:
        # The sidecar left no log: the caller refuses the session for it.
        return None


def _corroboration(
    job: Job, egress: EgressSummary | None, prices: PriceTable | None
) -> CorroborationRecord | None:
    """The join with the egress log; None for a log that is refused for itself."""
    if egress is None or egress.faults:
        return None
    with (
        (job.directory / "raw.jsonl").open("rb") as raw,
        (job.directory / "egress.jsonl").open("rb") as log,
    ):
        return record_of(corroborate(raw, log, task=job.task, session=job.session, prices=prices))


def _document_digests(
    observation: Observation, places: Places, reading: ArchiveReading | None
) -> dict[str, str]:
    """The digest after the session of every path inside the workspace that a call named.

    A path that was not read is not in it: the empty digest says that no document is there.
    """
    digests: dict[str, str] = {}
    for call in observation.calls:
        if call.path is None or reading is None:
            continue
        placed = places.place(call.path)
        if not placed.startswith("/") and _why_unread(reading, placed) is None:
            digests[placed] = reading.digest(os.fsencode(placed)) or ""
    return digests


def _why_unread(reading: ArchiveReading, placed: str) -> str | None:
    """Why nothing is known of a path of the workspace; None where something is."""
    path = os.fsencode(placed)
    for item in reading.not_read:
        if item.path == path:
            return item.why
    known = path in reading.by_path or any(item.path == path for item in reading.left)
    return None if known else reading.stopped


def _digest_of(digests: Mapping[str, str], reading: ArchiveReading, placed: str) -> str:
    """The digest of a document that a call named. Refusal 13 where it could not be derived."""
    if placed.startswith("/"):
        return ""
    if placed not in digests:
        raise Refusal(
            ExitCode.OBSERVATION,
            f"{_text(placed)}: a call named it and it was not read "
            f"({_why_unread(reading, placed)}), so what it held was not derived",
        )
    return digests[placed]


def _produced(
    observation: Observation,
    places: Places,
    changes: Changes,
    reading: ArchiveReading,
    job: Job,
) -> tuple[ProducedFile, ...] | None:
    """What was produced, by its placed path; None where the workspace was not read whole."""
    if not changes.whole:
        return None
    pattern = compile_cites(job.line.identifiers)
    files = []
    changed = [os.fsdecode(entry.path) for entry in changes.produced]
    for placed in produced_paths(observation, places, changed=changed):
        digest = "" if placed.startswith("/") else reading.digest(os.fsencode(placed)) or ""
        copy = job.directory / "produced" / digest.removeprefix("sha256:")
        cites = cites_in(copy.read_bytes(), pattern) if digest and copy.is_file() else ()
        files.append(ProducedFile(path=placed, sha256=digest, cites=cites))
    return tuple(files)


def _check(
    engine: Engine,
    job: Job,
    setting: Setting,
    check: Check,
    changes: Changes,
    produced: tuple[ProducedFile, ...] | None,
) -> CheckEnd:
    """Run the corpus's check once over what the session left, where it left something.

    A workspace that was not read whole is not checked: what is missing could be the finding.
    """
    if produced is None or not any(
        file.sha256 and not file.path.startswith("/") for file in produced
    ):
        return CheckEnd(not_run(check), None, None)
    tree = job.line.tree
    if check.over == "corpus":
        if check.baseline is None:
            raise ValueError("a check over the corpus has a baseline")
        tree = check.baseline
    kept = job.directory / "produced"
    changed = [
        Placed(entry.path, entry.mode, kept / entry.sha256.removeprefix("sha256:"))
        for entry in changes.produced
    ]
    return run_check(
        engine,
        setting.session_image,
        check,
        patched(tree, changed=changed, removed=changes.removed or ()),
        name=f"{driver_name()}-{job.session}",
        labels={DRIVER_LABEL: driver_identity(), "recorder.session": job.session},
        uid=job.uid,
    )


def _broken(
    job: Job, disciplines: Disciplines, changes: Changes, produced: Iterable[ProducedFile]
) -> ArtifactFindings:
    """The disciplines that each artifact breaks, judged over the arm's own tree."""
    baseline = tree_of(job.line.manifest, [job.line.tree])
    return artifact_findings(
        disciplines,
        artifacts_of(produced, baseline, kept_content(job.directory / "produced")),
        other_files(
            baseline,
            map(path_text, changes.removed or ()),
            (path_text(item.path) for item in (*changes.excluded, *changes.left)),
        ),
    )


def _text(path: str) -> str:
    """A path as text: one whose bytes are not UTF-8 in the escaped form of a manifest."""
    return path_text(os.fsencode(path))


def _evidence(
    session: Session,
    watched: Watched,
    observation: Observation,
    egress: EgressSummary | None,
    corroboration: CorroborationRecord | None,
    checked: CheckRecord | None,
    judged: DisciplinesRecord | None,
    changes: Changes | None,
    digests: Mapping[str, str],
    hook_lines: int | None,
    job: Job,
    setting: Setting,
    refusal: Refusal | None,
) -> Evidence:
    order = session.order
    times = watched.times
    return Evidence(
        schema=SCHEMA,
        recorder=__version__,
        probe=job.probe,
        session=job.session,
        tier=job.line.tier,
        arm=job.line.arm,
        rehearsal=setting.rehearsal or observation.rehearsal,
        argv=order.argv,
        environment=tuple(sorted(order.environment)),
        pinned=tuple(sorted(pinned_routes(order.placeholder, order.credential.form))),
        attach=Attach(
            query=ATTACH_QUERY, before_start=True, standard_input_once=True, engine_log="none"
        ),
        ended=watched.ended,
        exit_status=watched.exit_status,
        guard=watched.outcome,
        harness_version=observation.inits[-1].harness_version if observation.inits else None,
        sidecar={key: value for key, value in watched.sidecar.items() if key != "event"},
        session_container=masked(watched.session_inspect),
        sidecar_container=masked(watched.sidecar_inspect),
        counts=counts_of(observation),
        document_digests=dict(sorted(digests.items())),
        workspace=_workspace(changes) if changes is not None else None,
        egress=Egress(
            host=PROVIDER_HOST,
            allowed=egress.allowed if egress else (),
            refused=egress.refused if egress else (),
            fetches=egress.fetches if egress else (),
            not_forwarded=egress.not_forwarded if egress else 0,
            bound=egress.bound if egress else None,
            faults=egress.faults if egress else None,
            policy=watched.sidecar.get("policy", ""),
        ),
        credential=CredentialRecord(form=order.credential.form, copied=order.credential.copied),
        corroboration=corroboration,
        check=checked,
        disciplines=judged,
        hook_log_lines=hook_lines,
        seconds={
            "sidecar": times.sidecar,
            "create": times.create,
            "start": times.start,
            "first_line": times.first_line,
            "session": times.session,
            "collect": times.collect,
        },
        max_turns=job.line.max_turns,
        capped=observation.capped,
        arm_delta=job.line.delta,
        arm_declared=job.line.declared_delta,
        not_enforced=setting.not_enforced,
        refusal=RefusalRecord(code=refusal.code, reasons=refusal.reasons) if refusal else None,
    )


def _workspace(changes: Changes) -> Workspace:
    def lefts(items: Iterable[archive.Left]) -> tuple[Left, ...]:
        return tuple(Left(path=path_text(item.path), why=item.why) for item in items)

    return Workspace(
        added=tuple(path_text(entry.path) for entry in changes.added),
        changed=tuple(path_text(entry.path) for entry in changes.changed),
        mode_changed=tuple(path_text(entry.path) for entry in changes.mode_changed),
        removed=None if changes.removed is None else tuple(map(path_text, changes.removed)),
        excluded=lefts(changes.excluded),
        left=lefts(changes.left),
        not_read=lefts(changes.not_read),
        stopped=changes.stopped,
    )
