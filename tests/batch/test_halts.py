"""Which failures stop a batch: the table, over the harness's own captures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from recorder.batch.halts import RULES, Facts, Halt, halt_of, statuses_of
from recorder.refusal import ExitCode
from recorder.stream.failures import Failure, failure_of


def facts(
    failure: Failure | None = None,
    answered: Sequence[int] | None = (),
    *,
    code: int = ExitCode.HARNESS,
    ended: str = "harness",
    began: bool = True,
) -> Facts:
    return Facts(code, ended, failure, answered, began)


def name_of(found: Facts) -> str | None:
    halt = halt_of("s", found)
    return None if halt is None else halt.rule.name


@pytest.mark.parametrize(
    ("capture", "answered", "rule"),
    [
        ("30-err400", (400,), None),
        ("31-err401", (401,), "credential"),
        ("33-err403", (403,), "credential"),
        ("34-err404-model", (404,), "model"),
        ("36-err429-gives-up", (429,) * 11, "rate-limit"),
        ("38-err529-gives-up", (529,) * 11, "outage"),
        ("39-err500-gives-up", (500,) * 3, "outage"),
        ("41-drop-before-answer", (), "connection"),
        ("49-credit", (400,), "credit"),
        ("50-max-tokens-gives-up", (200,) * 4, None),
        ("57-prompt-too-long", (400,), None),
        ("64-no-auth", (), "credential"),
        ("88-proxy-down", (), "connection"),
        ("89-tls-untrusted", (), "certificate"),
    ],
)
def test_a_capture_halts_a_batch_or_not(
    shared: Path, capture: str, answered: Sequence[int], rule: str | None
) -> None:
    path = shared / "captures" / "claude-code" / f"{capture}.jsonl"
    found = failure_of([path.read_bytes()])
    assert name_of(facts(found, answered)) == rule


def test_a_usage_limit_halts_until_it_resets() -> None:
    limit = Failure(429, "rate_limit", "usage_limit_reached", 1796083200.0, 0)
    halt = halt_of("s", facts(limit, (200, 429)))
    assert halt is not None
    assert (halt.rule.name, halt.rule.passes, halt.until) == (
        "usage-limit",
        "at its reset",
        1796083200.0,
    )
    assert "session s" in halt.said()


def test_a_status_that_the_sidecar_gave_is_none_of_the_provider_s() -> None:
    """It answers what the policy refuses with 403, and too many requests at once with 429."""
    for status, error in ((403, "authentication_failed"), (429, "rate_limit")):
        assert name_of(facts(Failure(status, error, None, None, 0), (200,))) is None
    assert name_of(facts(Failure(429, "rate_limit", None, None, 0), None)) == "rate-limit"


def test_a_session_that_asked_until_it_was_killed_is_told_by_the_provider_s_last_answer() -> None:
    assert name_of(facts(None, (200, 529, 529), ended="deadline")) == "outage"
    assert name_of(facts(None, (529, 200), ended="deadline")) is None
    assert name_of(facts(None, (429,), code=ExitCode.OBSERVATION)) is None


def test_what_the_host_does_to_a_session_halts_a_batch() -> None:
    assert name_of(facts(code=ExitCode.CONFINEMENT, ended="sidecar")) == "sidecar"
    assert name_of(facts(code=ExitCode.CAP, ended="disk")) == "disk"
    assert name_of(facts(began=False)) == "harness"
    assert name_of(facts(ended="deadline", began=False)) is None


@pytest.mark.parametrize("code", [ExitCode.OBSERVATION, ExitCode.WITNESSES, ExitCode.CONFINEMENT])
def test_a_refusal_of_a_session_s_own_halts_nothing(code: int) -> None:
    assert halt_of("s", facts(code=code)) is None


def test_every_rule_has_a_reason_and_a_remedy_and_its_own_name() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        said = Halt(rule, None).said()
        assert said == f"{rule.name}: {rule.why}: {rule.remedy}"
        assert "\n" not in said


def test_statuses_are_those_of_answers() -> None:
    log = [
        {"kind": "decision", "status": 403},
        {"kind": "answer", "status": 429},
        {"kind": "answer", "status": None},
        {"kind": "answer", "status": 200},
    ]
    assert statuses_of(log) == (429, 200)
