"""What the built images hold, asked of the images themselves."""

from __future__ import annotations

import docker
import pytest

import recorder
from recorder.images.build import IMAGE_NAMES, build_images, image_tag, list_images
from recorder.refusal import ExitCode, Refusal

pytestmark = pytest.mark.engine


def inside(client: docker.DockerClient, image: str, script: str, user: str = "0") -> str:
    output = client.containers.run(
        image_tag(image),
        ["-c", script],
        entrypoint=["/bin/sh"],
        network_mode="none",
        user=user,
        remove=True,
        stderr=True,
    )
    assert isinstance(output, bytes)
    return output.decode()


def test_a_second_build_builds_nothing(engine_client: docker.DockerClient) -> None:
    build_images(engine_client, ["session"])
    said: list[str] = []
    again = build_images(engine_client, ["session"], progress=said.append)
    assert said == []
    assert all(image.skipped for image in again)


def test_every_image_says_its_version_revision_and_title(
    engine_client: docker.DockerClient,
) -> None:
    for state in list_images(engine_client):
        assert state.labels["org.opencontainers.image.version"] == recorder.__version__
        assert state.labels["org.opencontainers.image.revision"]
        assert state.labels["org.opencontainers.image.title"].startswith("Recorder")


@pytest.mark.parametrize(("name", "megabytes"), [("session", 750), ("proxy", 250)])
def test_an_image_stays_under_its_size(
    engine_client: docker.DockerClient, name: str, megabytes: int
) -> None:
    size = engine_client.images.get(image_tag(name)).attrs["Size"]
    assert size < megabytes * 1_000_000


def test_the_harness_may_be_run_and_not_read_by_a_session(
    engine_client: docker.DockerClient,
) -> None:
    said = inside(
        engine_client,
        "session",
        "stat -c '%a %u:%g' /opt/harness/claude; /opt/harness/claude --version; "
        "head -c 1 /opt/harness/claude 2>&1 || true",
        user="1000",
    ).splitlines()
    assert said[0] == "711 0:0"
    assert said[1].endswith("(Claude Code)")
    assert "Permission denied" in said[2]


def test_a_session_finds_its_tools_and_nothing_is_set_id(
    engine_client: docker.DockerClient,
) -> None:
    tools = "git curl jq rg awk nc file less patch diff ps ip dig openssl python3 which xz"
    said = inside(
        engine_client,
        "session",
        f"for tool in {tools}; do command -v $tool >/dev/null || echo missing $tool; done; "
        "find / -xdev -perm /6000; ls -d /home /mnt /media /srv 2>/dev/null || true",
    )
    assert said == ""


def test_what_a_session_is_given_is_roots_and_not_writable(
    engine_client: docker.DockerClient,
) -> None:
    said = inside(
        engine_client,
        "session",
        "find /opt /etc /usr -xdev \\( ! -user 0 -o ! -type l -perm /022 \\); "
        "stat -c '%n %a %u' /opt/recorder/guard.py /opt/recorder/forwarder.py "
        "/etc/claude-code /workspace /session/config /session/log",
    ).splitlines()
    assert said == [
        "/opt/recorder/guard.py 644 0",
        "/opt/recorder/forwarder.py 644 0",
        "/etc/claude-code 755 0",
        "/workspace 755 0",
        "/session/config 755 0",
        "/session/log 755 0",
    ]


@pytest.mark.parametrize("name", IMAGE_NAMES)
def test_no_image_names_a_mirror_and_each_trusts_the_public_authorities(
    engine_client: docker.DockerClient, name: str
) -> None:
    script = (
        "ls /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/apt.conf.d/99mmdebstrap "
        "/var/lib/apt/lists 2>/dev/null | grep -v ':$' | grep . ; "
        'python3 -c "import ssl; print(len(ssl.create_default_context().get_ca_certs()) > 100)"'
    )
    assert inside(engine_client, name, script).split()[-1] == "True"
    assert "list" not in inside(engine_client, name, script).replace("/var/lib/apt/lists", "")


def test_the_sidecars_mitmproxy_is_12_and_its_user_is_not_root(
    engine_client: docker.DockerClient,
) -> None:
    said = engine_client.containers.run(
        image_tag("proxy"),
        ["-I", "-c", "import os, mitmproxy.version as v; print(v.VERSION, os.getuid())"],
        entrypoint=["/usr/bin/python3"],
        network_mode="none",
        remove=True,
    )
    version, uid = said.decode().split()
    assert version.startswith("12.")
    assert uid == "990"


def test_an_unknown_image_is_a_usage_refusal(engine_client: docker.DockerClient) -> None:
    with pytest.raises(Refusal) as refused:
        build_images(engine_client, ["sesion"])
    assert refused.value.code is ExitCode.USAGE
    assert "session" in str(refused.value)
