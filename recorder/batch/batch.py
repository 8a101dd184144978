"""A batch: what answers its sessions, what it pins, and the one driver that holds it."""

from __future__ import annotations

import datetime
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from proxy.policy import Policy, shipped
from proxy.policy import load as load_policy
from recorder import __version__
from recorder.batch.assembly import refuse_link
from recorder.batch.before import BEFORE
from recorder.batch.given import Given
from recorder.batch.line import LaidLine
from recorder.batch.pinned import SCHEMA, Pinned, PinnedLine, encode_pinned
from recorder.batch.recording import Job
from recorder.batch.runner import Images
from recorder.batch.schedule import Slot
from recorder.batch.spec import BatchSpec
from recorder.durable import write_durable
from recorder.engine.client import Engine
from recorder.evidence.package import package_digest
from recorder.images.build import image_tag
from recorder.lock import lock_alone
from recorder.plain_file import decode, read_plain
from recorder.refusal import ExitCode, Refusal
from recorder.rehearsal.script import credential as rehearsal_credential
from recorder.rehearsal.script import load_script
from recorder.session.credentials import Choice, rehearsed
from recorder.session.leftovers import (
    DRIVER_LABEL,
    driver_identity,
    driver_name,
)
from recorder.session.self_check import self_check
from recorder.session.sidecar import Credential, Upstream
from recorder.session.upstream import provider_network, rehearsal_network

# Names that the harness turns into a model's own before it asks.
MODEL_ALIASES = frozenset({"default", "haiku", "opus", "opusplan", "sonnet"})
CONSTRUCTION_SCHEMA = "recorder.construction/1"


@dataclass(frozen=True)
class Source:
    """Where answers come from: a rehearsal's script, or the provider with a credential.

    A rehearsal's sessions hold theirs in the form that ``choice`` names, as real ones would.
    """

    rehearsal: str | None
    credential: Credential
    choice: Choice = "api-key"
    name: str = "the rehearsal script"
    renew: Callable[[], Credential | None] | None = None
    """Reads the host's credential again, which the host's own harness may have refreshed since."""

    def latest(self) -> Credential:
        """The credential as the host has it at this moment."""
        return (self.renew and self.renew()) or self.credential

    def lasts(self, seconds: float) -> bool:
        """Whether a session that starts at this moment could end before the credential expires."""
        if self.rehearsal is not None:
            return True
        expires = self.latest().expires_at
        return expires is None or expires >= time.time() + seconds

    @property
    def digest(self) -> str | None:
        if self.rehearsal is None:
            return None
        return f"sha256:{hashlib.sha256(self.rehearsal.encode()).hexdigest()}"

    def credential_of(self, probe: str, session: str) -> Credential:
        if self.rehearsal is None:
            return self.latest()
        value = rehearsal_credential(probe, session)
        return rehearsed(Credential("api_key", value), self.choice, time.time())

    def require_answers(self, probes: Iterable[str]) -> None:
        """Refusal 2 for a script without an answer to a probe that is to run."""
        if self.rehearsal is None:
            return
        script = load_script(self.rehearsal, self.name)
        silent = sorted({probe for probe in probes if script.of(probe) is None})
        if silent:
            raise Refusal(
                ExitCode.USAGE,
                f"{self.name}: answers nothing to {', '.join(silent)}: give each its turns, or a "
                "default",
            )

    @property
    def credentials(self) -> str:
        """How sessions hold their credential: it decides what the harness asks and says."""
        if self.rehearsal is not None:
            return self.choice
        return "copy" if self.credential.copied else self.credential.form

    def upstream(
        self, engine: Engine, name: str, labels: Mapping[str, str]
    ) -> AbstractContextManager[Upstream]:
        if self.rehearsal is None:
            return provider_network(engine, name, labels)
        image = image_id(engine, "recorder")
        return rehearsal_network(engine, name, labels, image, self.rehearsal)


def source_of(
    rehearsal: Path | None, credential: Credential | None, choice: Choice | None = None
) -> Source:
    """A rehearsal where a script is named, checked before anything runs; else the provider."""
    if rehearsal is not None:
        try:
            text = rehearsal.read_text("utf-8")
        except OSError as error:
            raise Refusal(
                ExitCode.USAGE, f"{rehearsal}: {error.strerror}: name a rehearsal script"
            ) from error
        except UnicodeDecodeError as error:
            raise Refusal(
                ExitCode.USAGE, f"{rehearsal}: is not UTF-8 (byte {error.start + 1})"
            ) from error
        load_script(text, str(rehearsal))
        return Source(text, Credential("none", ""), choice or "api-key", str(rehearsal))
    if credential is None:
        raise Refusal(
            ExitCode.MISSING,
            "no credential: set ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN, log in with Claude "
            "Code, or rehearse with --rehearse SCRIPT and spend nothing",
        )
    return Source(None, credential)


def require_model(model: str | None, where: str, policy: Policy | None = None) -> None:
    """Refusal 2 for a model that no request of a session may name, by the policy it runs under.

    None is the policy that is shipped.
    """
    models = (policy or load_policy(shipped("anthropic"), "the policy")).models
    if model is None or model in models or model in MODEL_ALIASES:
        return
    allowed = [*sorted(models.exact), *(f"{prefix}*" for prefix in models.prefixes)]
    raise Refusal(
        ExitCode.USAGE,
        f"{where} {model!r}: the policy lets no such model be asked; it allows "
        f"{', '.join(allowed)}, and the harness's names {', '.join(sorted(MODEL_ALIASES))}",
    )


def image_id(engine: Engine, name: str) -> str:
    """The id of one of our images. Refusal 3 where it is not built."""
    tag = image_tag(name)
    identifier = engine.image_id(tag)
    if identifier is None:
        raise Refusal(ExitCode.MISSING, f"{tag}: is not built: run `recorder images build`")
    return identifier


def prove_construction(engine: Engine, session_image: str, out: Path) -> None:
    """Run the attack list on this engine and keep its result. Refusal 12 where one is open."""
    labels = {DRIVER_LABEL: driver_identity()}
    checked = self_check(engine, session_image, driver_name(), labels)
    result = {
        "schema": CONSTRUCTION_SCHEMA,
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "session_image": session_image,
        "engine": engine.facts(),
        "recorder_package": package_digest(),
        "files": checked.files,
        "attempts": checked.attempts,
    }
    path = out / "evidence" / "construction.json"
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    write_durable(path, msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")


@contextmanager
def held(out: Path) -> Iterator[None]:
    """The one driver of an output directory. Refusal 20 for a second."""
    descriptor = os.open(out / "batch.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        lock_alone(descriptor, f"{out}: another driver holds this batch: wait for it to end")
        yield
    finally:
        os.close(descriptor)


@contextmanager
def held_session(directory: Path) -> Iterator[None]:
    """The one driver of a session's own directory, which is made, and goes again if left empty.

    The directory itself is locked, so that no file of a lock is beside what was recorded. Refusal
    20 for a second driver, 19 for a link, 2 where a session is in it already.
    """
    refuse_link(directory.parent)
    refuse_link(directory)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        lock_alone(
            descriptor, f"{directory}: another driver records this session: give another --session"
        )
        refuse_used(directory)
        try:
            yield
        finally:
            if not any(directory.iterdir()):
                directory.rmdir()
    finally:
        os.close(descriptor)


def refuse_used(directory: Path) -> None:
    """Refusal 2 for a session's directory that holds something."""
    if directory.exists() and any(directory.iterdir()):
        raise Refusal(
            ExitCode.USAGE, f"{directory}: holds a session already: give another --session or --out"
        )


def pinned_of(
    spec: BatchSpec,
    lines: Sequence[LaidLine],
    order: tuple[Slot, ...],
    source: Source,
    images: Images,
    given: Given,
) -> Pinned:
    """What a batch pins before its first session."""
    return Pinned(
        schema=SCHEMA,
        recorder=__version__,
        model=spec.model,
        seed=spec.seed,
        rehearsal=source.digest,
        session_image=images.session,
        sidecar_image=images.sidecar,
        lines=tuple(
            PinnedLine(
                tier=laid.line.tier,
                arm=laid.line.arm,
                probes=tuple(probe.id for probe in laid.probes),
                repetitions=laid.repetitions,
                lock=laid.line.members.lock,
                tree=laid.line.members.tree,
                selection=laid.line.members.selection,
                read_set=laid.line.members.read_set,
                seed=laid.line.members.seed,
                harness=laid.line.members.harness,
                manifest=f"sha256:{hashlib.sha256(laid.manifest_text.encode()).hexdigest()}",
                check=laid.line.check.identity if laid.line.check is not None else None,
                max_turns=laid.line.max_turns,
                disciplines=laid.line.disciplines.digest if laid.line.disciplines else None,
                identifiers=laid.line.identifiers,
            )
            for laid in lines
        ),
        order=tuple(slot.name for slot in order),
        credentials=source.credentials,
        session_dollars=None if spec.bound is None else str(spec.bound),
        harness_version=images.harness,
        policy=given.policy.digest,
        prices=given.own_prices,
    )


def pin(out: Path, pinned: Pinned) -> None:
    """Write batch.json, or hold what is there against it: Refusal 4 names what moved."""
    path = out / "batch.json"
    refuse_link(path)
    if not path.exists():
        write_durable(path, encode_pinned(pinned))
        return
    try:
        before = decode(read_plain(path), Pinned)
    except msgspec.MsgspecError as error:
        raise Refusal(ExitCode.CORRUPT, f"{path}: is not a batch's own record: {error}") from error
    moved = [
        f"{path}: {member} moved since this batch began{values}: use another --out, or put it back"
        for member, values in _moved(before, pinned)
    ]
    if moved:
        raise Refusal(ExitCode.MOVED, *moved)


def _moved(before: Pinned, now: Pinned) -> Iterator[tuple[str, str]]:
    """The members that differ, each with what it was and is; of lines each by its number, while
    there are as many."""
    for field in Pinned.__struct_fields__:
        if getattr(before, field) == getattr(now, field):
            continue
        if field != "lines" or len(before.lines) != len(now.lines):
            yield field, _from_to(getattr(before, field), getattr(now, field))
            continue
        for number, (old, new) in enumerate(zip(before.lines, now.lines, strict=True), start=1):
            for member in PinnedLine.__struct_fields__:
                if getattr(old, member) != getattr(new, member):
                    values = _from_to(getattr(old, member), getattr(new, member))
                    yield f"{member} of line {number} ({new.tier} {new.arm})", values


def _from_to(before: object, now: object) -> str:
    """What a member was and is, where that is a word or a number."""
    short = all(
        isinstance(each, str | int | None) and len(str(each)) <= 40 for each in (before, now)
    )
    return f" (it was {before}, and is {now})" if short else ""


def write_plans(out: Path, lines: Sequence[LaidLine]) -> None:
    """plans/ and arms/: what was planned and which tree its sessions get, before any runs."""
    for number, laid in enumerate(lines, start=1):
        name = laid.name(number)
        for folder, suffix, text in (
            ("plans", "txt", laid.plan_text),
            ("arms", "manifest", laid.manifest_text),
        ):
            path = out / folder / f"{name}.{suffix}"
            path.parent.mkdir(mode=0o755, exist_ok=True)
            write_durable(path, text.encode())


def job_of(slot: Slot, lines: Sequence[LaidLine], out: Path) -> Job:
    """The session of a slot; its uid is that of the place that it comes to run in."""
    laid = lines[slot.line - 1]
    probe = laid.probes[slot.position - 1]
    return Job(
        line=laid.line,
        probe=probe.id,
        task=probe.task,
        answers=probe.answers or None,
        session=slot.name,
        directory=out / "sessions" / slot.name,
        uid=0,
        before=out / "arms" / BEFORE,
    )
