"""The files that a batch file names beside its corpus, read and checked before anything runs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proxy.policy import Policy, PolicyError, shipped
from proxy.policy import load as load_policy
from recorder.batch.spec import BatchSpec
from recorder.evidence.pricing import PriceTable, parse_prices, shipped_prices
from recorder.refusal import ExitCode, Refusal
from recorder.session.upstream import PROVIDER_HOST

TREE = "sha256:"


@dataclass(frozen=True)
class Given:
    """``policy_text`` is None for the policy that is shipped, which the sidecar has itself, and
    ``own_prices`` for the table that is."""

    policy: Policy
    policy_text: str | None
    own_prices: PriceTable | None

    @property
    def prices(self) -> PriceTable:
        return self.own_prices or shipped_prices()


def given_of(spec: BatchSpec) -> Given:
    """Refusal 2 for a policy or a price table that cannot be read, naming file and place."""
    text = None if spec.policy is None else _text(Path(spec.policy), "an egress policy")
    try:
        policy = load_policy(
            shipped("anthropic") if text is None else text, spec.policy or "the policy"
        )
    except PolicyError as error:
        raise Refusal(ExitCode.USAGE, str(error)) from error
    if policy.hosts != {PROVIDER_HOST}:
        raise Refusal(
            ExitCode.USAGE,
            f"{spec.policy}: names {', '.join(sorted(policy.hosts)) or 'no host'}: a session "
            f"reaches {PROVIDER_HOST} and no other host",
        )
    prices = None
    if spec.prices is not None:
        prices = parse_prices(_text(Path(spec.prices), "a price table"), spec.prices)
    return Given(policy, text, prices)


def _text(path: Path, what: str) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise Refusal(ExitCode.USAGE, f"{path}: {error.strerror}: name {what}") from error
    except UnicodeDecodeError as error:
        raise Refusal(ExitCode.USAGE, f"{path}: is not UTF-8 (byte {error.start + 1})") from error


def require_pin(pin: str | None, corpus: Path, tree: str) -> None:
    """Refuse (4) a corpus that is not the one that the batch file names.

    ``pin`` is the digest of the classified documents, as ``tree`` is of those that are there, or
    the commit that is checked out with nothing changed and nothing untracked in the corpus.
    """
    if pin is None:
        return
    if pin.startswith(TREE):
        if pin != tree:
            raise Refusal(
                ExitCode.MOVED, f"{corpus}: its tree is {tree}, and pin names {pin}: put it back"
            )
        return
    head = _git(corpus, ["rev-parse", "HEAD"]).strip()
    if head != pin:
        raise Refusal(
            ExitCode.MOVED, f"{corpus}: {head} is checked out, and pin names {pin}: check that out"
        )
    changed = _git(corpus, ["status", "--porcelain", "--untracked-files=all", "--", "."])
    if changed:
        first = changed.splitlines()[0].strip()
        raise Refusal(
            ExitCode.MOVED,
            f"{corpus}: is not as {pin} has it ({first}): commit that or put it back",
        )


def _git(corpus: Path, arguments: Sequence[str]) -> str:
    """What git prints of a corpus, whatever repository the caller's own environment names."""
    environment = {name: value for name, value in os.environ.items() if name[:4] != "GIT_"}
    try:
        ended = subprocess.run(
            ["git", "-C", str(corpus), "-c", "core.fsmonitor=false", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
    except FileNotFoundError as error:
        raise Refusal(
            ExitCode.MISSING, "git: is not there, and pin names a commit: install git"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise Refusal(ExitCode.MOVED, f"{corpus}: git did not end within 60 s") from error
    if ended.returncode != 0:
        said = " ".join(ended.stderr.split())
        raise Refusal(
            ExitCode.MOVED, f"{corpus}: pin names a commit, and git says: {said or 'nothing'}"
        )
    return ended.stdout
