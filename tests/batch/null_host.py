"""A host without an engine: its sessions write what a recorded one leaves, and no container runs.

Effects are counted at the provider, a file outside the batch: one line a request that reached it.
What a session does is its ``Act``, by its name and the attempt that it is.
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path

from msgspec import structs

from proxy.egress import EgressLog
from recorder.batch.batch import Source
from recorder.batch.driving import Order, Report, drive
from recorder.batch.given import given_of
from recorder.batch.recording import HaltedError, Job, Recorded, failure_of, identity_of
from recorder.batch.runner import Images, Runner
from recorder.batch.spec import BatchSpec, LineSpec
from recorder.durable import write_durable
from recorder.evidence.counting import counts_of
from recorder.evidence.document import (
    SCHEMA,
    Attach,
    Egress,
    Evidence,
    RefusalRecord,
    Workspace,
    encode_evidence,
)
from recorder.evidence.egress import summarise
from recorder.evidence.prose import statements
from recorder.refusal import ExitCode, Refusal
from recorder.session.sidecar import Credential
from recorder.stream.observation import observe
from recorder.stream.provider import provider_members
from recorder.transcript.writer import event_yaml, transcript_markdown
from recorder.transform.event import build_event
from recorder.workspace.comparison import Changes
from recorder.workspace.manifest import Entry, digest_of

IMAGES = Images("sha256:" + "5" * 64, "sha256:" + "7" * 64)
MODEL = "claude-sonnet-4-5"
POLICY = "sha256:" + "9" * 64
USAGE = {
    "input_tokens": 10,
    "output_tokens": 20,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
}


class DriverKilledError(BaseException):
    """Stands for the end of the process: nothing is written after it, by anybody."""


@dataclass(frozen=True)
class Act:
    """What a session does. ``requests`` reach the provider; ``code`` refuses it when it is not 0.

    ``dies``: at this point the whole driver ends as if killed; ``log``: whether its egress log is
    there then.
    """

    requests: int = 1
    code: int = 0
    dollars: str | None = "0.25"
    answer: str = "bytes"
    dies: str = ""
    log: bool = True
    capped: bool = False


def as_usual(*_: object) -> Act:
    return Act()


@dataclass
class NullHost:
    """``acts``: what a session does; ``provider``: the file that counts the effects."""

    provider: Path
    acts: Callable[[Job, int], Act] = as_usual
    dead: list[tuple[Path, bytes | None]] = field(default_factory=list)
    """Egress logs that a dead driver's sidecars still hold, each with its session's directory."""
    attempts: dict[str, int] = field(default_factory=dict)

    def images(self) -> Images:
        return IMAGES

    def collect(self, kept: Callable[[], None], _: str) -> None:
        for directory, log in self.dead:
            if log is not None and not (directory / "egress.jsonl").exists():
                write_durable(directory / "egress.jsonl", log)
        kept()
        self.dead.clear()

    @contextmanager
    def running(self, *_: object) -> Iterator[Runner]:
        yield self

    def open(self, job: Job) -> NullSession:
        job.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.attempts[job.session] = self.attempts.get(job.session, 0) + 1
        return NullSession(self, job, self.acts(job, self.attempts[job.session]))

    def close(self) -> None:
        pass


@dataclass
class NullSession:
    host: NullHost
    job: Job
    act: Act

    def run(self, before_start: Callable[[], None], halt: threading.Event) -> Recorded:
        act, directory = self.act, self.job.directory
        if act.dies == "created":
            raise DriverKilledError
        before_start()
        if act.dies == "started":
            self._die()
        write_durable(directory / "raw.jsonl", stream_of(act))
        write_durable(directory / "stderr.log", b"")
        if act.dies == "spent" or halt.is_set():
            self._spend()
            self._die()
        self._spend()
        log = self._log()
        if log is not None:
            write_durable(directory / "egress.jsonl", log)
        if halt.is_set():
            raise HaltedError
        if act.dies == "logged":
            raise DriverKilledError
        recorded = recorded_of(self.job, act)
        if act.dies == "ended":
            raise DriverKilledError
        return recorded

    def remove(self) -> None:
        pass

    def _spend(self) -> None:
        with self.host.provider.open("a") as file:
            file.write(f"{self.job.session}\n" * self.act.requests)

    def _log(self) -> bytes | None:
        return egress_log(self.job.session, self.act.requests) if self.act.log else None

    def _die(self) -> None:
        self.host.dead.append((self.job.directory, self._log()))
        raise DriverKilledError


def stream_of(act: Act) -> bytes:
    lines = [
        {"type": "system", "subtype": "init", "cwd": "/workspace", "session_id": "s",
         "model": MODEL, "permissionMode": "dontAsk", "claude_code_version": "2.1.332"},
        {"type": "result", "subtype": "success", "is_error": act.code == 10, "result": act.answer,
         "num_turns": 1, "session_id": "s", "usage": {}, "modelUsage": {},
         "permission_denials": [],
         **({} if act.dollars is None else {"total_cost_usd": float(act.dollars)})},
    ]  # fmt: skip
    if act.capped:
        lines[-1]["subtype"] = "error_max_turns"
        lines[-1]["is_error"] = True
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def egress_log(session: str, requests: int, *, closed: bool = True) -> bytes:
    """A log as the sidecar writes it, with as many requests that reached the provider."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "log"
        log = EgressLog(path, session, lambda: "2025-06-01T12:00:00.000Z")
        bounds = dict.fromkeys(("requests", "bytes", "input_tokens", "output_tokens", "dollars"))
        log.append("open", {"policy": POLICY, "mitmproxy": "12", "bounds": bounds}, durable=False)
        for number in range(1, requests + 1):
            log.append("decision", _asked(number), durable=False)
            log.append("answer", _answered(number), durable=False)
        if closed:
            log.close(
                {
                    "used": {
                        "requests": requests,
                        "bytes": 0,
                        "input_tokens": 0,
                        "output_tokens": 0,
                        "dollars": None,
                    }
                }
            )
        return path.read_bytes()


def _asked(number: int) -> dict[str, object]:
    return {
        "connection": 1,
        "request": number,
        "layer": "body",
        "asked": {
            "host": "api.anthropic.com",
            "port": 443,
            "method": "POST",
            "path": "/v1/messages?beta=true",
        },
        "decision": "allowed",
        "rule": None,
        "detail": "",
        "status": None,
        "said": {
            "model": MODEL,
            "stream": True,
            "head": POLICY,
            "tools": 0,
            "tools_digest": POLICY,
            "max_tokens": 1,
            "session": None,
            "follows": None,
            "messages": [],
        },
    }


def _answered(number: int) -> dict[str, object]:
    return {
        "connection": 1,
        "request": number,
        "status": 200,
        "end": "whole",
        "upstream": None,
        "certificate": None,
        "request_id": None,
        "sent_bytes": 1,
        "received_bytes": 1,
        "first_byte_ms": 1.0,
        "whole_ms": 1.0,
        "model_asked": MODEL,
        "model_served": f"{MODEL}-20250929",
        "message": f"msg_{number}",
        "stop_reason": "end_turn",
        "error": None,
        "usage": USAGE,
        "usage_start": USAGE,
        "blocks": [],
        "whole": True,
        "readable": True,
    }


def recorded_of(job: Job, act: Act) -> Recorded:
    """Write a session's files as a recording leaves them, evidence last."""
    directory = job.directory
    observation = observe([(directory / "raw.jsonl").read_bytes()])
    log = directory / "egress.jsonl"
    summary = summarise(log.read_bytes()) if log.exists() else None
    copy = b"one\ntwo\n"
    produced = directory / "produced" / digest_of(copy).removeprefix("sha256:")
    produced.parent.mkdir(mode=0o700, exist_ok=True)
    produced.write_bytes(copy)
    changes = Changes(
        added=(Entry(b"reports/summary.md", 0o644, len(copy), digest_of(copy)),),
        changed=(),
        mode_changed=(),
        removed=(),
        excluded=(),
        left=(),
        not_read=(),
        stopped=None,
    )
    event = build_event(
        observation,
        probe=job.probe,
        session=job.session,
        document_digest=lambda _: "",
        produced=None,
        answers=job.answers,
    )
    members = provider_members(observation)
    refusal = Refusal(ExitCode(act.code), f"session {job.session}: as told") if act.code else None
    evidence = Evidence(
        schema=SCHEMA,
        recorder="0.1.0",
        probe=job.probe,
        session=job.session,
        tier=job.line.tier,
        arm=job.line.arm,
        rehearsal=False,
        argv=("claude", "--", job.task),
        environment=(),
        pinned=(),
        attach=Attach(query="", before_start=True, standard_input_once=True, engine_log="none"),
        ended="harness",
        exit_status=0,
        guard={"stage": "harness"},
        harness_version="2.1.332",
        sidecar={"policy": POLICY},
        session_container={"Image": IMAGES.session, "HostConfig": {"NetworkMode": "none"}},
        sidecar_container={"Image": IMAGES.sidecar},
        counts=counts_of(observation),
        document_digests={},
        workspace=Workspace(
            added=("reports/summary.md",),
            changed=(),
            mode_changed=(),
            removed=(),
            excluded=(),
            left=(),
            not_read=(),
            stopped=None,
        ),
        egress=Egress(
            host="api.anthropic.com",
            allowed=summary.allowed if summary else (),
            refused=summary.refused if summary else (),
            fetches=(),
            not_forwarded=0,
            faults=summary.faults if summary else None,
            policy=POLICY,
        ),
        hook_log_lines=0,
        seconds={"session": 1.0},
        max_turns=None,
        capped=observation.capped,
        arm_delta=(),
        arm_declared=(),
        not_enforced=(),
        refusal=RefusalRecord(code=act.code, reasons=refusal.reasons) if refusal else None,
    )
    identity = None
    cost = None if act.dollars is None else round(Decimal(act.dollars) * 100)
    if refusal is None:
        identity = identity_of(job.line, members, cost or 0)
        write_durable(directory / "event.yaml", event_yaml(event).encode())
        title = f"Session {job.session} of {job.probe}"
        text = transcript_markdown(title, {}, identity, statements([evidence]), [event])
        write_durable(directory / "record.md", text.encode())
    write_durable(directory / "evidence.json", encode_evidence(evidence))
    return Recorded(
        job,
        evidence,
        None if refusal else event,
        identity,
        cost,
        None,
        refusal,
        dollars=None if act.dollars is None else Decimal(act.dollars),
        failure=failure_of(observation),
        changes=changes,
    )


PAID = Source(None, Credential("api_key", "sk-none"))
"""A batch that spends, as far as its ledger knows; no request leaves this process."""


def spec_of(corpus: Path, **changes: object) -> BatchSpec:
    """One line of three sessions over the example corpus."""
    line = LineSpec(tier="campaign", arm="present", repetitions=1)
    spec = BatchSpec(corpus=str(corpus), model=MODEL, lines=(line,), seed=7)
    return structs.replace(spec, **changes)


@dataclass(frozen=True)
class Batch:
    """A batch of a test, run as often as the test likes."""

    corpus: Path
    out: Path
    spec: BatchSpec

    @property
    def provider(self) -> Path:
        return self.out.with_name(f"{self.out.name}.provider")

    @property
    def effects(self) -> list[str]:
        """The session of each request that reached the provider, in order."""
        return self.provider.read_text().split() if self.provider.exists() else []

    def host(self, acts: Callable[[Job, int], Act] = as_usual) -> NullHost:
        return NullHost(self.provider, acts)

    def run(self, host: NullHost | None = None, source: Source = PAID, **changes: object) -> Report:
        order = replace(Order(stop=threading.Event(), heartbeat=0), **changes)
        return drive(
            self.spec,
            given_of(self.spec),
            self.corpus,
            self.out,
            source,
            host or self.host(),
            order,
        )
