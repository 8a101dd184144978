"""What an engine says of itself, and what doctor makes of it and of the host. Pure."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from recorder.engine.connect import Choice, read_facts
from recorder.engine.doctor import Finding, Gathered, HostFacts, Level, exit_code, findings
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
