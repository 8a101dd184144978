"""A batch that nobody recorded: its streams, evidence, manifests and kept files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recorder.transcript.contract import Artifact, Event, Identity
from recorder.transcript.writer import transcript_markdown
from recorder.workspace.manifest import digest_of, manifest_of, write_manifest

DIGEST = "sha256:" + "0" * 64


@dataclass(frozen=True)
class Call:
    """One call of a made session. ``ok`` None: no result came."""

    tool: str
    given: Mapping[str, Any]
    ok: bool | None = True
    agent: str | None = None
    same_message: bool = False


def stamp(second: int) -> str:
    return f"2025-06-01T12:{second // 60:02d}:{second % 60:02d}.000Z"


def stream(calls: Sequence[Call]) -> bytes:
    """An init line, then each call and its result; parallel calls before any of theirs."""
    lines: list[dict[str, Any]] = [
        {"type": "system", "subtype": "init", "cwd": "/workspace", "session_id": "s"}
    ]
    waiting: list[dict[str, Any]] = []
    for number, call in enumerate(calls, start=1):
        if not call.same_message:
            lines += waiting
            waiting = []
        shared: dict[str, Any] = {"session_id": "s", "parent_tool_use_id": None}
        if call.agent is not None:
            shared = {**shared, "parent_tool_use_id": "toolu_0", "subagent_type": call.agent}
        block = {
            "type": "tool_use",
            "id": f"toolu_{number}",
            "name": call.tool,
            "input": call.given,
        }
        lines.append(
            {
                "type": "assistant",
                "message": {"id": f"m{number}", "content": [block]},
                "timestamp": stamp(number),
                **shared,
            }
        )
        if call.ok is not None:
            result = {
                "type": "tool_result",
                "tool_use_id": f"toolu_{number}",
                "content": "x",
                **({} if call.ok else {"is_error": True}),
            }
            waiting.append(
                {
                    "type": "user",
                    "message": {"content": [result]},
                    "timestamp": stamp(number),
                    **shared,
                }
            )
    lines += waiting
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


@dataclass
class Made:
    """A batch's directory with one line, whose arm's tree is ``tree``."""

    out: Path
    tree: Path
    line: str = "L1-campaign-present"
    arm: str = "present"
    sessions: list[Path] = field(default_factory=list)

    def begin(self) -> None:
        arms = self.out / "arms"
        arms.mkdir(parents=True, exist_ok=True)
        (arms / f"{self.line}.manifest").write_text(write_manifest(manifest_of(self.tree)))

    def session(
        self,
        calls: Sequence[Call],
        after: Mapping[str, bytes | None],
        *,
        task: str = "Do it.",
        refusal: int | None = None,
        **workspace: Any,
    ) -> Path:
        """A session that ended; ``after`` is what its workspace holds that the tree does not,
        None for what it removed."""
        directory = self.out / "sessions" / f"{self.line}-p1-r{len(self.sessions) + 1}"
        (directory / "produced").mkdir(parents=True)
        added, changed, removed, artifacts = [], [], [], []
        for path, content in sorted(after.items()):
            there = (self.tree / path).is_file()
            if content is None:
                removed.append(path)
                continue
            if there and (self.tree / path).read_bytes() == content:
                continue
            (changed if there else added).append(path)
            digest = digest_of(content)
            (directory / "produced" / digest.removeprefix("sha256:")).write_bytes(content)
            artifacts.append(Artifact(path=path, result=digest, cites=()))
        evidence = {
            "session": directory.name,
            "probe": "PROBE-A",
            "tier": "campaign",
            "arm": self.arm,
            "rehearsal": False,
            "argv": ["claude", "-p", "--", task],
            "guard": {"started": 1748779200.0},
            "workspace": {
                "added": added,
                "changed": changed,
                "removed": removed,
                "excluded": [],
                "left": [],
                "not_read": [],
                "stopped": None,
                **workspace,
            },
            "refusal": None if refusal is None else {"code": refusal},
        }
        (directory / "evidence.json").write_text(json.dumps(evidence))
        (directory / "raw.jsonl").write_bytes(stream(calls))
        event = Event(
            probe="PROBE-A",
            session=directory.name,
            calls=(),
            produced=tuple(artifacts),
            answer=None,
        )
        if refusal is None:
            text = transcript_markdown("Session", {}, IDENTITY, ["Said."], [event])
            (directory / "record.md").write_text(text)
        self.sessions.append(directory)
        return directory


IDENTITY = Identity(
    model="m",
    served_version="m-1",
    tree=DIGEST,
    lock=DIGEST,
    selection=DIGEST,
    read_set=DIGEST,
    seed=1,
    harness="0.1.0",
    tier="campaign",
    arm="present",
    at="2025-06-01",
    cost_cents=3,
)


def rules(*entries: Mapping[str, Any]) -> bytes:
    return json.dumps({"disciplines": list(entries)}).encode()


def entry(
    identifier: str,
    extract: Mapping[str, Any],
    op: str = "empty",
    scope: str | None = "target.path",
    *,
    supply: str = "empty",
    sources: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """An entry that relates one extraction ``it``, of the mechanism that admits everything."""
    names = [step["of"] for steps in extract.values() for step in steps if step["op"] == "source"]
    declare: dict[str, Any] = {
        "mechanism": "scoped-valve",
        **({} if scope is None else {"scope": {"source": scope}}),
        **({} if sources is None else {"sources": sources}),
        "supply": {name: supply for name in names if name != "state"},
        "extract": extract,
        "relate": [{"id": "r", "relation": {"op": op, "of": "it"}, "message": "{key}:{value}"}],
        "witness": {
            "relate": [
                {
                    "id": "w",
                    "relation": {"op": "empty" if op == "nonEmpty" else "nonEmpty", "of": "no"},
                    "message": "w",
                }
            ],
            "extract": {
                "no": [
                    {"op": "source", "of": "command" if scope == "command" else "target.path"},
                    {"op": "matches", "re": "^" if op == "nonEmpty" else "^never$"},
                ]
            },
        },
    }
    return {"id": identifier, "declare": declare, **more}
