"""Which engine is used, and a client of it.

The user's choice wins (``DOCKER_HOST``, then a docker context that is not the default); otherwise
our rootless engine is used. A system engine that happens to run is not: it would have to be named.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import docker
import docker.errors
import requests.exceptions
from docker.context import Context, ContextAPI

from recorder.engine import rootless
from recorder.refusal import ExitCode, Refusal

CALL_SECONDS = 120

Origin = Literal["DOCKER_HOST", "docker context", "recorder engine"]


@dataclass(frozen=True)
class Choice:
    """The engine that is used and who chose it."""

    docker_host: str
    origin: Origin


@dataclass(frozen=True)
class EngineFacts:
    """What an engine says of itself. The limits are those it really enforces, by its own word."""

    version: str
    api_version: str
    product: str
    rootless: bool
    remapped: bool
    seccomp: bool
    storage_driver: str
    cgroup_version: str
    cgroup_driver: str
    enforces_memory: bool
    enforces_pids: bool
    enforces_cpu: bool
    data_root: str
    operating_system: str
    warnings: tuple[str, ...]


def user_choice(environment: Mapping[str, str] = os.environ) -> Choice | None:
    """The engine the user names, or None."""
    if given := environment.get("DOCKER_HOST"):
        return Choice(given, "DOCKER_HOST")
    name = environment.get("DOCKER_CONTEXT")
    try:
        # The stubs promise a context; there is none for a name that is not known.
        context = cast("Context | None", ContextAPI.get_context(name or None))
    except (docker.errors.DockerException, ValueError, TypeError, KeyError, OSError) as error:
        raise Refusal(
            ExitCode.MISSING,
            f"the docker context {name or 'in use'} cannot be read: {error}: "
            "set DOCKER_HOST, or run docker context use default",
        ) from error
    if context is None and name and name != "default":
        raise Refusal(ExitCode.MISSING, f"there is no docker context {name}: see docker context ls")
    if context is None or context.Name == "default" or not context.Host:
        return None
    return Choice(str(context.Host), "docker context")


def choice() -> Choice:
    """The engine that is used; Refusal (3) where none is named and ours does not answer."""
    chosen = user_choice()
    if chosen is not None:
        return chosen
    ours = rootless.place().docker_host
    if rootless.answers(ours):
        return Choice(ours, "recorder engine")
    raise Refusal(
        ExitCode.MISSING,
        "no engine: ours does not run: run recorder engine start (or set DOCKER_HOST)",
    )


def docker_host() -> str:
    """The address of the engine that is used; Refusal (3) where there is none."""
    return choice().docker_host


def connect(host: str | None = None, timeout: int = CALL_SECONDS) -> docker.DockerClient:
    """A client of the engine that is used, or of the one at ``host``; Refusal (3) if it is mute."""
    chosen = Choice(host, "DOCKER_HOST") if host is not None else choice()
    client: docker.DockerClient | None = None
    try:
        rootless.reach(chosen.docker_host)
        client = docker.from_env(
            environment={**os.environ, "DOCKER_HOST": chosen.docker_host},
            timeout=timeout,
            use_ssh_client=chosen.docker_host.startswith("ssh://"),
        )
        client.ping()
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
        if client is not None:
            client.close()
        remedy = (
            "run recorder engine start"
            if chosen.origin == "recorder engine"
            else f"start it, or change {chosen.origin}"
        )
        raise Refusal(
            ExitCode.MISSING,
            f"the engine at {chosen.docker_host} ({chosen.origin}) does not answer: "
            f"{_cause(error)}: {remedy}",
        ) from error
    return client


def engine_facts(client: docker.DockerClient) -> EngineFacts:
    """Ask the engine what it is."""
    return read_facts(client.info(), client.version())


def read_facts(information: Mapping[str, Any], version: Mapping[str, Any]) -> EngineFacts:
    """The facts in an engine's ``info`` and ``version``. Pure."""
    options = [str(option) for option in information.get("SecurityOptions") or []]
    names = {option.partition(",")[0].removeprefix("name=") for option in options}
    products = [str(part.get("Name", "")) for part in version.get("Components") or []]
    rootless_cgroup_1 = "rootless" in names and str(information.get("CgroupVersion", "1")) == "1"
    # Podman's socket says that limits hold where, rootless on cgroup v1, they are ignored.
    ignored = rootless_cgroup_1 and information.get("CgroupDriver") != "systemd"
    return EngineFacts(
        version=str(version.get("Version", "")),
        api_version=str(version.get("ApiVersion", "")),
        product=products[0] if products else "",
        rootless="rootless" in names,
        remapped="userns" in names,
        seccomp="seccomp" in names,
        storage_driver=str(information.get("Driver", "")),
        cgroup_version=str(information.get("CgroupVersion", "1")),
        cgroup_driver=str(information.get("CgroupDriver", "")),
        enforces_memory=bool(information.get("MemoryLimit")) and not ignored,
        enforces_pids=bool(information.get("PidsLimit")) and not ignored,
        enforces_cpu=bool(information.get("CpuCfsQuota")) and not ignored,
        data_root=str(information.get("DockerRootDir", "")),
        operating_system=str(information.get("OperatingSystem", "")),
        warnings=tuple(str(line) for line in information.get("Warnings") or []),
    )


def _cause(error: BaseException) -> str:
    """The innermost cause, in one line."""
    seen = error
    while (inner := seen.__cause__ or seen.__context__) is not None:
        seen = inner
    text = str(seen).strip() or type(seen).__name__
    return text.splitlines()[0]
