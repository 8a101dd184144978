"""A batch is verified by somebody else: another user, read-only, without a network or an engine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from recorder.evidence.verification import SIGNER, STATEMENT
from tests.recording.rig import PROJECT

pytestmark = pytest.mark.engine

NOBODY = 65534

# In namespaces of its own: no network but a loopback that is down, the batch mounted read-only, and
# whatever of the interpreter and the project lies below a closed directory put where another user
# can come to it. Nothing of that is left afterwards.
SCRIPT = r"""
set -euo pipefail
mount --make-rprivate /
batch=$1; user=$2; closed=$3; shift 3
needed=("$@")
if [ -n "$closed" ]; then
    held=()
    for path in "${needed[@]}"; do
        hold=$(mktemp -d "$HOLD/XXXXXX"); mount --rbind "$path" "$hold"; held+=("$hold")
    done
    mount -t tmpfs -o mode=755 tmpfs "$closed"
    for number in "${!needed[@]}"; do
        mkdir -p "${needed[$number]}"; mount --rbind "${held[$number]}" "${needed[$number]}"
    done
fi
mount --bind "$batch" "$batch"
mount -o remount,bind,ro "$batch"
exec setpriv --reuid="$user" --regid="$user" --clear-groups --no-new-privs \
    env -i PATH=/usr/bin:/bin HOME=/nonexistent PYTHONPATH="$PROJECT" \
    "$PYTHON" -m recorder verify "$batch"
"""


@pytest.fixture
def elsewhere(signed: Path) -> Iterator[Path]:
    """A copy that anybody may read and nobody write, where anybody can come to it."""
    directory = Path(tempfile.mkdtemp(prefix="recorder-elsewhere-", dir="/var/tmp"))
    directory.chmod(0o755)
    copy = directory / "batch"
    shutil.copytree(signed, copy)
    for path in [copy, *copy.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield copy
    shutil.rmtree(directory)


def closed_directory(paths: list[Path]) -> str:
    """The one directory below the root that keeps another user out of some path; empty for none."""
    tops = {
        path.parts[1]
        for path in paths
        if any(not parent.stat().st_mode & 0o001 for parent in (path, *path.parents))
    }
    if len(tops) > 1:
        pytest.skip(f"more than one closed directory on the way: {', '.join(sorted(tops))}")
    return f"/{tops.pop()}" if tops else ""


def verified_by_nobody(batch: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    names = ["unshare", "--mount", "--net"]
    if subprocess.run([*names, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this host lets nobody have namespaces of their own")
    python = Path(sys.executable)
    needed = sorted({Path(sys.base_prefix), Path(sys.prefix), PROJECT})
    closed = closed_directory(needed)
    own = [path for path in needed if closed and path.is_relative_to(closed)]
    return subprocess.run(
        [*names, "bash", "-c", SCRIPT, "bash", batch, str(NOBODY), closed, *own],
        capture_output=True,
        text=True,
        cwd="/",
        env={
            "PATH": os.environ["PATH"],
            "PYTHON": str(python),
            "PROJECT": str(PROJECT),
            "HOLD": str(tmp_path),
        },
        timeout=60,
        check=False,
    )


def test_another_user_verifies_a_batch_that_is_read_only_with_neither_network_nor_engine(
    elsewhere: Path, tmp_path: Path
) -> None:
    before = {path: path.stat().st_mtime_ns for path in elsewhere.rglob("*")}
    ran = verified_by_nobody(elsewhere, tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("signed: ")
    assert "nobody here has trusted" in ran.stdout
    assert {path: path.stat().st_mtime_ns for path in elsewhere.rglob("*")} == before


def test_another_user_finds_what_was_changed(
    elsewhere: Path, tmp_path: Path, signing_key: Ed25519PrivateKey
) -> None:
    path = elsewhere / "sessions" / "L1-campaign-present-p1-r1" / "stderr.log"
    whole = path.read_bytes()
    path.write_bytes(whole + b"\n")
    ran = verified_by_nobody(elsewhere, tmp_path)
    assert ran.returncode == 19
    assert "stderr.log" in ran.stderr
    path.write_bytes(whole)
    for name in (STATEMENT, SIGNER):
        (elsewhere / name).unlink()
    ran = verified_by_nobody(elsewhere, tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("unsigned: ")
