"""What an engine says of itself, and what doctor makes of it and of the host. Pure."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest

from recorder.engine.connect import Choice, read_facts
from recorder.engine.doctor import (
    ClockFacts,
    Finding,
    Gathered,
    HostFacts,
    Level,
    NetworkFacts,
    credential_finding,
    exit_code,
    findings,
    network_ceiling,
    place_finding,
    seconds_ahead,
)
from recorder.images.build import ImageState
from recorder.refusal import ExitCode

# As Debian's 26.1.5 answers, rootless on cgroup v1.
INFORMATION: dict[str, Any] = {
    "SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"],
    "Driver": "overlay2",
    "CgroupVersion": "1",
    "CgroupDriver": "none",
    "MemoryLimit": False,
    "PidsLimit": False,
    "CpuCfsQuota": False,
    "DockerRootDir": "/var/lib/recorder/engine",
    "OperatingSystem": "Debian GNU/Linux 12 (bookworm)",
    "Warnings": None,
}
VERSION: dict[str, Any] = {
    "Version": "26.1.5+dfsg1",
    "ApiVersion": "1.45",
    "Components": [{"Name": "Engine"}, {"Name": "containerd"}],
}
HOST = HostFacts(
    engine_user="recorder",
    max_user_namespaces=96365,
    unprivileged_user_namespaces=None,
    apparmor_restricts_user_namespaces=None,
    subordinate_uids=65536,
    subordinate_gids=65536,
    uid_map_helpers=("/usr/bin/newuidmap", "/usr/bin/newgidmap"),
    tun_mode=0o666,
    seccomp_actions="kill_process kill_thread trap errno trace log allow",
    keyrings=200,
    inotify_instances=128,
    open_files=20000,
    free_bytes=80 << 30,
    free_bytes_path="/var/lib/recorder/engine",
)
IMAGES = (ImageState("session", "recorder-session:0.1.0", "sha256:1", 633_000_000, {}),)


def gathered(
    information: dict[str, Any] | None = None, host: HostFacts = HOST, **changes: Any
) -> Gathered:
    whole = Gathered(
        host=host,
        chosen=Choice("unix:///run/user/999/docker.sock", "recorder engine"),
        engine=read_facts({**INFORMATION, **(information or {})}, VERSION),
        refusal="",
        images=IMAGES,
        clock=ClockFacts(synchronised=True, ahead=0.0),
        networks=NetworkFacts(used=3, ceiling=4096),
    )
    return dataclasses.replace(whole, **changes)


def named(found: tuple[Finding, ...], subject: str) -> Finding:
    (finding,) = [finding for finding in found if finding.subject == subject]
    return finding


def test_a_rootless_engine_on_cgroup_1_confines_and_does_not_enforce() -> None:
    found = findings(gathered())
    assert named(found, "rootless").level is Level.OK
    for subject in ("memory limit", "process limit", "cpu limit"):
        assert named(found, subject).level is Level.WEAK
        assert "not enforced" in named(found, subject).evidence
    assert exit_code(found) is ExitCode.DONE


def test_podmans_word_for_limits_that_it_ignores_is_not_taken() -> None:
    said = {"MemoryLimit": True, "PidsLimit": True, "CpuCfsQuota": True, "CgroupDriver": "cgroupfs"}
    facts = read_facts({**INFORMATION, **said}, VERSION)
    assert not facts.enforces_memory
    assert not facts.enforces_pids


def test_limits_on_cgroup_2_are_enforced() -> None:
    said = {
        "MemoryLimit": True,
        "PidsLimit": True,
        "CpuCfsQuota": True,
        "CgroupVersion": "2",
        "CgroupDriver": "systemd",
    }
    found = findings(gathered(said))
    assert named(found, "memory limit").level is Level.OK


@pytest.mark.parametrize(
    ("information", "host"),
    [
        ({"SecurityOptions": ["name=rootless"]}, HOST),
        ({}, dataclasses.replace(HOST, max_user_namespaces=0)),
        ({}, dataclasses.replace(HOST, unprivileged_user_namespaces=0)),
        ({}, dataclasses.replace(HOST, seccomp_actions="")),
    ],
    ids=["no seccomp profile", "no user namespaces", "none unprivileged", "no kernel seccomp"],
)
def test_a_host_that_cannot_confine_is_12_and_says_what_to_do(
    information: dict[str, Any], host: HostFacts
) -> None:
    found = findings(gathered(information, host))
    assert exit_code(found) is ExitCode.CONFINEMENT
    assert all(finding.remedy for finding in found if finding.level is Level.UNCONFINED)


@pytest.mark.parametrize(
    "change",
    [
        {"subordinate_uids": 0},
        {"uid_map_helpers": ()},
        {"tun_mode": 0o600},
        {"tun_mode": None},
    ],
    ids=["no subordinate ids", "no uidmap", "tun closed", "no tun"],
)
def test_what_set_up_has_not_done_is_3_and_names_the_command(change: dict[str, Any]) -> None:
    found = findings(gathered(host=dataclasses.replace(HOST, **change)))
    assert exit_code(found) is ExitCode.MISSING
    assert all(finding.remedy for finding in found if finding.level is Level.MISSING)


def test_a_mute_engine_is_3_with_its_reason() -> None:
    found = findings(gathered(engine=None, chosen=None, refusal="no engine: ours does not run"))
    assert named(found, "engine").evidence == "no engine: ours does not run"
    assert exit_code(found) is ExitCode.MISSING


def test_an_image_that_is_not_built_is_3() -> None:
    found = findings(gathered(images=(ImageState("session", "recorder-session:0.1.0"),)))
    assert exit_code(found) is ExitCode.MISSING
    assert "images build" in named(found, "image session").remedy


def test_a_rootful_engine_of_the_users_own_is_used_and_called_weak() -> None:
    found = findings(
        gathered(
            {"SecurityOptions": ["name=seccomp,profile=builtin"]},
            chosen=Choice("tcp://engine.test:2376", "DOCKER_HOST"),
        )
    )
    assert named(found, "rootless").level is Level.WEAK
    # The host's own tun and subordinate ids say nothing of somebody else's engine.
    assert not [finding for finding in found if finding.subject in ("tun", "subordinate ids")]


def test_a_data_root_that_names_a_person_is_told() -> None:
    found = findings(gathered({"DockerRootDir": "/home/alice/.local/share/recorder/engine"}))
    assert named(found, "data root").level is Level.WEAK


def test_an_engine_whose_clock_is_elsewhere_is_weak_and_says_by_how_much() -> None:
    finding = named(findings(gathered(clock=ClockFacts(True, -90.0))), "clock")
    assert finding.level is Level.WEAK
    assert "-90 s" in finding.evidence


def test_a_clock_that_nothing_keeps_right_is_weak() -> None:
    finding = named(findings(gathered(clock=ClockFacts(False, None))), "clock")
    assert finding.level is Level.WEAK
    assert finding.remedy
    assert named(findings(gathered(clock=ClockFacts(True, None))), "clock").level is Level.OK


@pytest.mark.parametrize(
    ("said", "ahead"),
    [
        ("2026-01-01T00:00:10.123456789Z", 0.0),
        ("2026-01-01T00:01:11Z", 60.0),
        ("2025-12-31T23:59:00Z", -70.0),
        ("2026-01-01T01:00:10.5+01:00", 0.0),
        ("2026-01-01T00:00:10", None),
        ("yesterday", None),
        (None, None),
    ],
)
def test_how_far_a_clock_is_ahead_allows_for_the_time_of_the_question(
    said: str | None, ahead: float | None
) -> None:
    before = datetime.datetime(2026, 1, 1, 0, 0, 10, tzinfo=datetime.UTC)
    information = {} if said is None else {"SystemTime": said}
    assert seconds_ahead(information, before, before + datetime.timedelta(seconds=1)) == ahead


def test_networks_that_run_out_are_weak() -> None:
    assert named(findings(gathered(networks=NetworkFacts(28, 31))), "networks").level is Level.WEAK
    assert named(findings(gathered(networks=NetworkFacts(27, 31))), "networks").level is Level.OK


def test_the_pools_say_how_many_networks_there_can_be() -> None:
    assert network_ceiling({}) == 31
    pools = [{"Base": "10.222.0.0/16", "Size": 28}, {"Base": "10.0.0.0/24", "Size": 24}]
    assert network_ceiling({"DefaultAddressPools": pools}) == 4097


def test_a_credential_is_good_until_it_expires() -> None:
    assert credential_finding(None, None, 0.0).level is Level.NOTE
    assert credential_finding("api-key", None, 0.0).level is Level.OK
    assert credential_finding("file", 7200.0, 0.0).level is Level.OK
    assert credential_finding("file", 600.0, 0.0).level is Level.WEAK
    expired = credential_finding("file", 0.0, 600.0)
    assert "10 minutes ago" in expired.evidence
    assert exit_code([expired]) is ExitCode.CONFINEMENT


def test_a_directory_where_no_batch_may_write_is_6() -> None:
    assert exit_code([place_finding("out", "it lies under the home", 80 << 30)]) is ExitCode.PLACE
    assert place_finding("out", None, 80 << 30).level is Level.OK
    assert place_finding("out", None, 1 << 30).level is Level.WEAK
