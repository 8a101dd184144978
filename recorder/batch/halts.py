"""Which failures of a session stop a batch from starting more of them: a table with reasons. Pure.

A limit or an outage is no result of the session that met it, and the next one would meet it too, at
a price. What is looked at are members of the harness's lines and the statuses that the sidecar saw
the provider give; no prose is read. A status counts only where the provider gave it: the sidecar
answers what it refuses with 403 and 429 of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from recorder.refusal import ExitCode
from recorder.stream.failures import Failure

Passes = Literal["at its reset", "by itself", "once renewed", "by a person"]
"""How a halt ends: at a time that is told; after some time, so it is asked again; when the host's
credential is another; or somebody has to do something first, and waiting does not help."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a session that was refused. ``code`` is its refusal's.

    ``ended``: how the driver saw its end. ``failure``: what its stream says of the request that
    ended it. ``answered``: the statuses of the provider's own answers, in order, None where no
    whole log tells them. ``began``: its stream holds an init line.
    """

    code: int
    ended: str
    failure: Failure | None
    answered: Sequence[int] | None
    began: bool

    def provider_said(self, *statuses: int) -> bool:
        """Whether the session ended on an answer of the provider with one of these statuses.

        A session that was killed while it asked again and again left no result line: then its last
        answer decides.
        """
        last = self.answered[-1] if self.answered else None
        if self.failure is None:
            return self.code == ExitCode.HARNESS and last in statuses
        status = self.failure.status
        return status in statuses and (self.answered is None or last == status)

    def error(self, word: str) -> bool:
        return self.failure is not None and self.failure.error == word

    def cause(self, word: str) -> bool:
        return self.failure is not None and self.failure.cause == word


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of failure that stops new starts. ``why`` and ``remedy`` are parts of a sentence."""

    name: str
    passes: Passes
    why: str
    remedy: str
    met: Callable[[Facts], bool]


RULES: tuple[Rule, ...] = (
    Rule(
        "usage-limit",
        "at its reset",
        "the subscription's usage limit is reached, and every session meets it until it resets",
        "wait for the reset, or run with --wait",
        lambda facts: facts.cause("usage_limit_reached"),
    ),
    Rule(
        "credit",
        "by a person",
        "the account has no credit left, and every session meets that",
        "add credit",
        lambda facts: facts.error("billing_error"),
    ),
    Rule(
        "credential",
        "by a person",
        "the provider does not take the credential (401 or 403), and sessions share it",
        "give another credential or log in again",
        lambda facts: (
            facts.provider_said(401, 403)
            or (facts.error("authentication_failed") and not facts.answered)
        ),
    ),
    Rule(
        "model",
        "by a person",
        "the provider knows no such model (404), and sessions share it",
        "name another model",
        lambda facts: facts.provider_said(404),
    ),
    Rule(
        "rate-limit",
        "by itself",
        "the provider still answered 429 after the harness had asked again as often as it does, "
        "and more sessions make that worse",
        "run with fewer in parallel, later, or with --wait",
        lambda facts: facts.provider_said(429),
    ),
    Rule(
        "outage",
        "by itself",
        "the provider still failed (5xx, 529 is overload) after the harness had asked again as "
        "often as it does",
        "run again later, or with --wait",
        lambda facts: facts.provider_said(*range(500, 600)),
    ),
    Rule(
        "certificate",
        "by a person",
        "the harness does not trust its proxy's certificate, which is the construction's fault",
        "see `recorder doctor`",
        lambda facts: facts.cause("tls_untrusted_ca"),
    ),
    Rule(
        "connection",
        "by itself",
        "no connection to the provider came about, and no session has another way",
        "look at the host's network, or run with --wait",
        lambda facts: facts.cause("connection_failed") and not facts.answered,
    ),
    Rule(
        "sidecar",
        "by a person",
        "the session's sidecar ended under it, so something on this host ends what a batch needs",
        "see the session's egress.jsonl and `recorder doctor`",
        lambda facts: facts.ended == "sidecar",
    ),
    Rule(
        "disk",
        "by a person",
        "less is free than is kept free, and every session writes",
        "free some disk",
        lambda facts: facts.ended == "disk",
    ),
    Rule(
        "harness",
        "by a person",
        "the harness ended without so much as an init line, which no task of a session explains",
        "see the session's stderr.log",
        lambda facts: (
            facts.code == ExitCode.HARNESS and facts.ended == "harness" and not facts.began
        ),
    ),
)

IN_A_ROW = 8
FAILURES = Rule(
    "failures",
    "by a person",
    f"{IN_A_ROW} sessions failed one after another, and none between them recorded",
    "see why with their evidence.json",
    lambda _: False,
)
EXPIRY = Rule(
    "expiry",
    "once renewed",
    "the host's credential expires before a session that starts could end",
    "use Claude Code on the host, which renews it, or run with --wait, which looks each minute",
    lambda _: False,
)
"""The two that no single session meets."""


@dataclass(frozen=True, slots=True)
class Halt:
    """Nothing more starts. ``until``: when it passes, in seconds since 1970, where that is told."""

    rule: Rule
    session: str | None
    until: float | None = None

    def said(self) -> str:
        where = "" if self.session is None else f" (session {self.session})"
        return f"{self.rule.name}{where}: {self.rule.why}: {self.rule.remedy}"


def halt_of(session: str, facts: Facts) -> Halt | None:
    """The halt that a refused session is; the first rule of the table that it meets."""
    for rule in RULES:
        if rule.met(facts):
            told = facts.failure.resets_at if facts.failure is not None else None
            return Halt(rule, session, told if rule.passes == "at its reset" else None)
    return None


def statuses_of(lines: Iterable[Mapping[str, Any]]) -> tuple[int, ...]:
    """The statuses of the provider's answers in an egress log, in order."""
    return tuple(
        status
        for line in lines
        if line.get("kind") == "answer" and isinstance(status := line.get("status"), int)
    )
