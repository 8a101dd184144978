"""The sidecar changed in the ways that made mitmproxy let everything through: nothing may pass."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.proxy.conftest import Construction
from tests.proxy.construction import (
    PROXY,
    Exchange,
    RunningSidecar,
    agent,
    changed_code,
    configuration,
    hooks,
    request,
    send,
    sidecar,
    tunnel,
    until,
    with_raising,
)
from tests.proxy.within import run_within, run_within_all

pytestmark = pytest.mark.engine


@dataclass
class Tried:
    """What an ordinary request came to at a changed sidecar."""

    ready: bool
    exchange: Exchange | None
    arrived: bool
    rules: list[str]


@contextmanager
def changed(construction: Construction, name: str, code: bytes) -> Iterator[RunningSidecar]:
    told = configuration(construction.provider.certificate)
    with sidecar(
        construction.engine, f"{construction.name}-{name}", construction.network, told, code
    ) as beside:
        yield beside


def tried(construction: Construction, name: str, code: bytes, scenario: str = "plain") -> Tried:
    construction.provider.seen()
    with changed(construction, name, code) as beside:
        ready = beside.said is not None and beside.said["event"] == "ready"
        if not ready:
            return Tried(False, None, bool(construction.provider.seen()), [])
        exchange = run_within(
            beside, [*tunnel(), send(request(scenario)), until(b"0\r\n\r\n", 2), until(None, 0.3)]
        )
        arrived = any("method" in line for line in construction.provider.seen())
        rules = [line["rule"] for line in beside.log() if line["kind"] == "decision"]
        return Tried(True, exchange, arrived, rules)


def test_the_code_unchanged_passes_so_the_changes_are_what_stops_it(
    construction: Construction,
) -> None:
    outcome = tried(construction, "unchanged", changed_code())
    assert outcome.ready
    assert outcome.arrived
    assert outcome.exchange is not None
    assert b"MARKER" in outcome.exchange.text


def test_an_addon_with_modification_time_0_is_in_force_like_any_other(
    construction: Construction,
) -> None:
    told = configuration(construction.provider.certificate)
    code = changed_code(modified=0)
    name = f"{construction.name}-time-0"
    construction.provider.seen()
    with sidecar(construction.engine, name, construction.network, told, code) as beside:
        assert beside.said is not None
        assert beside.said["event"] == "ready"
        refused = run_within(beside, [*tunnel(), send(request(mcp_servers=[])), until(None, 2)])
        assert b" 403 " in refused.text
        assert construction.provider.seen() == []


@pytest.mark.parametrize("missing", ["addon.py", "decision.py", "layers.py", "egress.py"])
def test_a_missing_part_is_never_ready(construction: Construction, missing: str) -> None:
    outcome = tried(construction, "missing", changed_code({missing: None}))
    assert not outcome.ready
    assert not outcome.arrived


# What a raising hook has to come to. "never ready": the canary sees it. "stopped": nothing reaches
# the provider. "withheld": the request had left by right, its answer does not come back. "closed":
# both had happened by right; the connection ends and the fault is in the log. "harmless": the hook
# only ends something that is over already.
OUTCOMES = {
    "client_connected": "never ready",
    "next_layer": "never ready",
    "http_connect": "never ready",
    "http_connect_error": "never ready",
    "http_connected": "stopped",
    "tls_clienthello": "stopped",
    "tls_start_client": "stopped",
    "tls_established_client": "stopped",
    "tls_failed_client": "harmless",
    "requestheaders": "stopped",
    "request": "stopped",
    "server_connect": "stopped",
    "server_connected": "stopped",
    "server_connect_error": "harmless",
    "tls_start_server": "stopped",
    "tls_established_server": "stopped",
    "tls_failed_server": "harmless",
    "responseheaders": "withheld",
    "response": "closed",
    "error": "harmless",
    "server_disconnected": "harmless",
    "client_disconnected": "harmless",
}


def test_every_hook_is_tried() -> None:
    assert sorted(hooks()) == sorted(OUTCOMES)


@pytest.mark.parametrize("hook", sorted(OUTCOMES))
def test_a_hook_that_raises_lets_nothing_pass(construction: Construction, hook: str) -> None:
    outcome = tried(construction, "raising", changed_code({"addon.py": with_raising(hook)}))
    answered = outcome.exchange is not None and b"MARKER" in outcome.exchange.text
    match OUTCOMES[hook]:
        case "never ready":
            assert not outcome.ready
            assert not outcome.arrived
        case "stopped":
            assert outcome.ready
            assert not outcome.arrived
            assert not answered
            assert "fault" in outcome.rules
        case "withheld":
            assert outcome.arrived
            assert not answered
            assert "fault" in outcome.rules
        case "closed":
            assert outcome.arrived
            assert "fault" in outcome.rules
        case "harmless":
            assert outcome.ready


def edited(name: str, old: str, new: str) -> bytes:
    text = (PROXY / name).read_text()
    assert text.count(old) == 1
    return changed_code({name: text.replace(old, new)})


def test_a_decision_that_allows_everything_is_never_ready(construction: Construction) -> None:
    code = edited(
        "decision.py",
        '    """Decide one layer. Never raises for anything a session can send."""\n',
        "    return Allowed()\n",
    )
    outcome = tried(construction, "allowing", code)
    assert not outcome.ready
    assert not outcome.arrived


def test_a_request_hook_that_does_nothing_dials_nothing(construction: Construction) -> None:
    """mitmproxy would forward what no hook spoke against: the last gate does not."""
    code = edited(
        "addon.py",
        "        if flow.response is not None:\n            return\n",
        "        return\n",
    )
    outcome = tried(construction, "silent", code)
    assert outcome.ready
    assert not outcome.arrived
    assert "not-decided" in outcome.rules


def test_a_second_request_that_no_hook_decided_does_not_use_the_first_ones_connection(
    construction: Construction,
) -> None:
    code = edited(
        "addon.py",
        "        if flow.response is not None:\n            return\n",
        "        if flow.response is not None or self.sidecar.used.requests:\n            return\n",
    )
    construction.provider.seen()
    with changed(construction, "second", code) as beside:
        run_within(
            beside,
            [
                *tunnel(),
                send(request("plain")),
                until(b"0\r\n\r\n"),
                send(request("plain")),
                until(None, 1),
            ],
        )
        arrived = [line for line in construction.provider.seen() if "method" in line]
        assert len(arrived) == 1


def test_a_log_that_cannot_be_written_lets_nothing_pass(construction: Construction) -> None:
    code = edited(
        "egress.py",
        '            written = os.write(self._descriptor, line + b"\\n")\n',
        "            if self._count >= 2:\n"
        '                raise OSError(28, "no space left")\n'
        '            written = os.write(self._descriptor, line + b"\\n")\n',
    )
    outcome = tried(construction, "full", code)
    assert outcome.ready
    assert not outcome.arrived
    assert outcome.exchange is not None
    assert b"MARKER" not in outcome.exchange.text


def test_a_head_that_does_not_come_to_its_end_is_closed_in_time(construction: Construction) -> None:
    code = edited("passage.py", "HEAD_SECONDS = 30.0", "HEAD_SECONDS = 0.3")
    with changed(construction, "slow", code) as beside:
        outside = run_within(beside, [send(b"GET / HTTP/1.1\r\n"), until(None, 5)])
        inside = run_within(beside, [*tunnel(), send(b"POST /v1"), until(None, 5)])
        assert outside.received[-1] == b""
        assert outside.times[-1] < 3
        assert inside.received[-1] == b""
        rules = [line["rule"] for line in beside.decisions(0, 2)]
        assert rules == ["head-too-slow", "head-too-slow"]


def test_a_connection_that_is_over_has_no_line_for_its_clock(construction: Construction) -> None:
    code = edited("passage.py", "HEAD_SECONDS = 30.0", "HEAD_SECONDS = 0.3")
    with changed(construction, "late", code) as beside:
        run_within(beside, [{"shut": True}, until(None, 5)])
        # The clock of this one began later, so the other's would have run out before it.
        run_within(beside, [send(b"GET / HTTP/1.1\r\n"), until(None, 5)])
        found = [(line["connection"], line["rule"]) for line in beside.decisions(0, 2)]
        assert [rule for _, rule in found] == ["nothing-asked", "head-too-slow"]
        assert len({connection for connection, _ in found}) == 2


def test_a_log_that_is_full_takes_no_connection_and_is_closed(construction: Construction) -> None:
    code = edited("egress.py", "LONGEST_LOG = 192 * 1024 * 1024", "LONGEST_LOG = 1500")
    with changed(construction, "brimful", code) as beside:
        for _ in range(8):
            run_within(beside, [{"shut": True}, until(None, 5)])
        status, _, reading = beside.end()
        assert status == 0
        assert reading.lines[-1]["kind"] == "close"
        assert reading.lines[-1]["unwritten"] > 0
        assert reading.faults == ("the log was full, and what came after is not in it",)


def test_a_log_at_its_bound_lets_no_request_leave(construction: Construction) -> None:
    policy = (PROXY / "policies" / "anthropic.yaml").read_text()
    policy = policy.replace("log_bytes: 134217728", "log_bytes: 1500")
    told = configuration(construction.provider.certificate, policy=policy)
    name = f"{construction.name}-bounded"
    with sidecar(construction.engine, name, construction.network, told) as beside:
        construction.provider.seen()
        for _ in range(6):
            run_within(beside, [*tunnel(), send(request("plain")), until(b"0\r\n\r\n", 2)])
        status, _, reading = beside.end()
        arrived = [line for line in construction.provider.seen() if "method" in line]
        assert len(arrived) == reading.allowed < 6
        assert {line["rule"] for line in reading.decisions} == {None, "log-full"}
        assert (status, reading.faults) == (0, ())


def test_bodies_at_every_limit_balloon_neither_the_sidecar_nor_its_log(
    construction: Construction,
) -> None:
    told = configuration(construction.provider.certificate)
    name = f"{construction.name}-heavy"
    block = b'{"type":"text","text":""}'
    over = _telling(b",".join([block] * 1_000_000))
    many = [_telling(b",".join([block] * count)) for count in (30_000, 29_999, 29_998, 29_997)]
    dense = b'{"model":"claude-opus-5","messages":[],"system":['
    dense += b",".join(b'{"%x":0}' % number for number in range(82_000)) + b"]"
    dense += b" " * ((1 << 25) - len(dense) - 1) + b"}"
    engine = construction.engine
    with (
        sidecar(engine, name, construction.network, told) as beside,
        agent(engine, f"{name}-agent", f"{name}-socket") as asking,
    ):
        ends = []
        for body in (over, over, *many, dense, dense):
            steps = [*tunnel(), send(request(body=body)), until(b"}", 60)]
            ends.append(asking.run(steps).text)
        assert b"body-too-many-nodes" in ends[0]
        made = beside.engine.api.exec_create(beside.container, ["cat", "/proc/1/status"])
        status = beside.engine.api.exec_start(made["Id"]).decode()
        most = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert most is not None
        assert int(most[1]) * 1024 < 300_000_000
        reading = beside.end()[2]
        assert (reading.allowed, reading.faults) == (6, ())
        assert sum(len(json.dumps(line)) for line in reading.lines) < 24 << 20


def _telling(blocks: bytes) -> bytes:
    return b'{"model":"claude-opus-5","messages":[{"role":"user","content":[' + blocks + b"]}]}"


def test_a_connection_too_many_is_closed_and_logged(construction: Construction) -> None:
    code = edited("passage.py", "MOST_CONNECTIONS = 256", "MOST_CONNECTIONS = 1")
    with changed(construction, "many", code) as beside:
        # The canary was alone. Of these two at once the later one is turned away, unread.
        exchanges = run_within_all(beside, [[until(None, 1)]] * 2)
        assert sorted(exchange.error or "" for exchange in exchanges) == ["", "TimeoutError"]
        rules = [line["rule"] for line in beside.decisions(0, 2)]
        assert rules == ["too-many-connections", "nothing-asked"]
