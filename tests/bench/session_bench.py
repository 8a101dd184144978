"""What a recorded session costs beside the same harness run bare on this host, as ratios.

Both are the real harness on the same six-turn script of the same rehearsal provider: bare over
plain http on loopback, recorded through guard, forwarder and sidecar. Runs alternate, so that a
noisy machine is noisy for all; the figures are medians and their ratios. Run as a program:
``python tests/bench/session_bench.py [ROUNDS]``.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(PROJECT_ROOT))

from recorder.batch.batch import image_id, source_of  # noqa: E402
from recorder.batch.recording import Job, Line, Setting, open_session, record  # noqa: E402
from recorder.engine.client import open_engine  # noqa: E402
from recorder.engine.connect import docker_host  # noqa: E402
from recorder.images.build import CACHE  # noqa: E402
from recorder.plan.composition import IdentityMembers  # noqa: E402
from recorder.rehearsal.script import credential  # noqa: E402
from recorder.session.harness import command_line, environment  # noqa: E402
from recorder.session.leftovers import DRIVER_LABEL, driver_identity  # noqa: E402
from recorder.session.sidecar import wait_ready  # noqa: E402
from recorder.workspace.manifest import manifest_of  # noqa: E402

ROUNDS = 7
WARM_BOUND, COLD_BOUND = 2.1, 3.5
TASK = "Read input.txt, add alpha and beta, and write out/report.md."


def tool(name: str, **values: str) -> dict[str, object]:
    return {"content": [{"tool_use": {"name": name, "input": values}}]}


def script() -> str:
    place = "{workspace}"
    turns: list[object] = [
        tool("Read", file_path=f"{place}/input.txt"),
        tool("Bash", command="ls -1", description="List"),
        tool("Bash", command="wc -l input.txt", description="Count"),
        tool("Write", file_path=f"{place}/out/report.md", content="# Report\n\ntotal: 42\n"),
        tool(
            "Edit", file_path=f"{place}/input.txt", old_string="beta = 12", new_string="beta = 13"
        ),
        {"content": [{"text": "Done.\n\n42"}]},
    ]
    return json.dumps({"default": turns, "PROBE-BENCH": turns})


def tree(directory: Path) -> Path:
    directory.mkdir()
    (directory / "input.txt").write_text("# input\nalpha = 30\nbeta = 12\n")
    return directory


class Bare:
    """The harness on the host, as an unprivileged user, against the provider on loopback."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        found = sorted(CACHE.glob("harness-*"))
        if not found:
            sys.exit("no harness in .build: run make setup")
        self.harness = directory / "claude"
        shutil.copyfile(found[0], self.harness)
        self.harness.chmod(0o755)
        self.directory = directory
        self.user = pwd.getpwnam("recorder" if os.geteuid() == 0 else pwd.getpwuid(os.getuid())[0])
        self.provider = subprocess.Popen(
            [sys.executable, "-m", "recorder.rehearsal", "--plain", "--host", "127.0.0.1"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=PROJECT_ROOT,
        )
        stack.callback(self.provider.wait, 10)
        assert self.provider.stdin is not None
        assert self.provider.stdout is not None
        stack.callback(self.provider.stdin.close)
        self.workspace = directory / "bare"
        line = json.dumps({"script": script(), "workspace": str(self.workspace)})
        self.provider.stdin.write(line.encode() + b"\n")
        self.provider.stdin.flush()
        self.port = json.loads(self.provider.stdout.readline())["port"]

    def run(self) -> float:
        shutil.rmtree(self.workspace, ignore_errors=True)
        home = self.directory / "home"
        shutil.rmtree(home, ignore_errors=True)
        tree(self.workspace)
        home.mkdir()
        for path in (self.workspace, self.workspace / "input.txt", home):
            os.chown(path, self.user.pw_uid, self.user.pw_gid)
        variables = {
            key: value
            for key, value in environment().items()
            if "proxy" not in key.lower() and "CERT" not in key
        }
        variables |= {
            "HOME": str(home),
            "CLAUDE_CONFIG_DIR": str(home),
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{self.port}",
            "ANTHROPIC_API_KEY": credential("PROBE-BENCH", "bare"),
        }
        argv = [str(self.harness), *command_line(TASK, model="claude-sonnet-4-5")[1:]]
        began = time.monotonic()
        ended = subprocess.run(
            argv,
            env=variables,
            cwd=self.workspace,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=True,
            user=self.user.pw_uid if os.geteuid() == 0 else None,
            group=self.user.pw_gid if os.geteuid() == 0 else None,
            extra_groups=[] if os.geteuid() == 0 else None,
        )
        seconds = time.monotonic() - began
        assert b'"subtype":"success"' in ended.stdout
        return seconds


def main(rounds: int) -> int:
    """Print the table; 1 where a bound is missed."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        directory.chmod(0o755)
        bare = Bare(stack, directory)
        engine = open_engine(docker_host())
        stack.callback(engine.close)
        text = directory / "script.yaml"
        text.write_text(script())
        source = source_of(text, None)
        labels = {DRIVER_LABEL: driver_identity()}
        upstream = stack.enter_context(
            source.upstream(engine, f"recorder-bench-{os.getpid()}", labels)
        )
        corpus = tree(directory / "corpus")
        line = Line(
            tier="campaign",
            arm="present",
            members=IdentityMembers("", "", "", "", 0, ""),
            tree=corpus,
            manifest=manifest_of(corpus),
            delta=(),
            servers=(),
            declared=frozenset(),
            has_mcp_configuration=False,
            max_turns=None,
        )
        setting = Setting(
            session_image=image_id(engine, "session"),
            sidecar_image=image_id(engine, "proxy"),
            upstream=upstream,
            credential_of=source.credential_of,
            rehearsal=True,
            model="claude-sonnet-4-5",
            timeout=60,
            host_skills=frozenset(),
        )
        seconds: dict[str, list[float]] = {"bare": [], "warm": [], "cold": []}
        steps: dict[str, list[float]] = {}
        for number in range(rounds):
            seconds["bare"].append(bare.run())
            for kind in ("warm", "cold"):
                job = Job(line, "PROBE-BENCH", TASK, None, f"{kind}-{number}", directory, 1000)
                job = replace(job, directory=directory / job.session)
                began = time.monotonic()
                session = open_session(engine, job, setting)
                if kind == "warm":
                    assert session.sidecar is not None
                    wait_ready(session.sidecar)
                    began = time.monotonic()
                recorded = record(session, job, setting)
                seconds[kind].append(time.monotonic() - began)
                if recorded.refusal is not None:
                    sys.exit("; ".join(recorded.refusal.reasons))
                if kind == "cold":
                    for step, value in recorded.evidence.seconds.items():
                        steps.setdefault(step, []).append(value or 0.0)
        median = {kind: statistics.median(values) for kind, values in seconds.items()}
        print(f"{rounds} rounds, medians of whole sessions of six turns")
        missed = 0
        for kind, bound in (("bare", None), ("warm", WARM_BOUND), ("cold", COLD_BOUND)):
            ratio = median[kind] / median["bare"]
            over = bound is not None and ratio > bound
            missed += over
            limit = "" if bound is None else f"  bound {bound}{'  MISSED' if over else ''}"
            print(f"{kind:5} {median[kind]:6.3f} s  {ratio:5.2f} x{limit}")
        print("steps of a cold session, seconds:")
        for step, values in steps.items():
            print(f"  {step:11} {statistics.median(values):6.3f}")
        return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))
