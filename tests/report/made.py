"""Sessions that nobody recorded, in the shape of a session's files and of its view."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recorder.report.batch_view import PlannedLine, batch_view
from recorder.report.session_view import SessionFiles, Shared
from recorder.report.view import BatchView, CallView, Fact, FileView, RequestView, SessionView
from recorder.report.visible import one_line
from recorder.transcript.contract import Artifact, Call, Event, Identity
from recorder.transcript.writer import transcript_markdown

DIGEST = "sha256:" + "0" * 64
HOSTILE = (
    "<img src=x onerror=\"document.body.dataset.hacked='yes'\">",
    "</script><script>document.body.dataset.hacked='yes'</script>",
    "\"'><svg onload=document.body.dataset.hacked=1>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:document.body.dataset.hacked='yes'",
    "evil\u202egnp.exe\u200b\x1b[31m\x00",
    "**`<b>`**",
)


def stamp(seconds: float) -> str:
    return f"2025-06-01T12:00:{seconds:06.3f}Z"


def assistant(seconds: float, number: int, tool: str, given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "assistant",
        "message": {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": "m-20250929",
            "content": [
                {"type": "text", "text": "words of a model"},
                {"type": "tool_use", "id": f"toolu_{number}", "name": tool, "input": given},
            ],
        },
        "session_id": "s",
        "parent_tool_use_id": None,
        "timestamp": stamp(seconds),
    }


def told(seconds: float, number: int, *, failed: bool = False) -> dict[str, Any]:
    return {
        "type": "user",
        "message": {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": f"toolu_{number}",
                    "content": "words of a document",
                    "is_error": failed,
                }
            ],
        },
        "session_id": "s",
        "parent_tool_use_id": None,
        "timestamp": stamp(seconds),
    }


def lines(*members: Mapping[str, Any]) -> bytes:
    return b"".join(json.dumps(member).encode() + b"\n" for member in members)


def evidence(session: str = "one", **changes: Any) -> bytes:
    document = {
        "session": session,
        "probe": "PROBE-A",
        "tier": "campaign",
        "arm": "present",
        "rehearsal": False,
        "argv": ["claude", "-p"],
        "ended": "harness",
        "exit_status": 0,
        "guard": {"started": 1748779200.0},
        "seconds": {"session": 3.5},
        "workspace": {"added": [], "changed": []},
        "refusal": None,
        **changes,
    }
    return json.dumps(document).encode()


IDENTITY = Identity(
    model="m",
    served_version="m-20250929",
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


def record(
    session: str = "one",
    calls: Sequence[Call] = (),
    produced: Sequence[Artifact] = (),
    answer: str | None = None,
) -> bytes:
    event = Event(
        probe="PROBE-A",
        session=session,
        calls=tuple(calls),
        produced=tuple(produced),
        answer=answer,
    )
    prose = ["**The channel.** Said of `it`.", "A second paragraph."]
    return transcript_markdown("Session", {}, IDENTITY, prose, [event]).encode()


def files(**changes: Any) -> SessionFiles:
    members: dict[str, Any] = {
        "started": True,
        "evidence": None,
        "record": None,
        "raw": None,
        "egress": None,
        "kept": lambda _: None,
    }
    return SessionFiles(**{**members, **changes})


def write_session(directory: Path, **contents: bytes) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (directory / name.replace("_", ".", 1)).write_bytes(content)
    return directory


def session(number: int, chance: random.Random, **changes: Any) -> SessionView:
    """A session's view with as much in it as a working session has, none of it like another."""
    arm = ("present", "absent")[number % 2]
    calls = tuple(
        CallView(
            number=index + 1,
            at=index * 2.0 + chance.random(),
            end=index * 2.0 + 1.5,
            tool=chance.choice(("Bash", "Read", "Grep", "Edit")),
            argument=f"/workspace/docs/{chance.randbytes(24).hex()}.md",
            cut=0,
            result=f"sha256:{hashlib.sha256(chance.randbytes(8)).hexdigest()}",
            mark="given",
            finding="",
            failed=False,
            subagent=False,
            request=index + 1,
        )
        for index in range(12)
    )
    requests = tuple(
        RequestView(
            at=index * 2.0 + chance.random(),
            seconds=chance.random(),
            host="api.anthropic.com:443" if index else "mirror.test:443",
            asked="POST /v1/messages?beta=true" if index else "CONNECT",
            outcome="allowed" if index else "connect-host",
            detail="",
            request=index or None,
            status=200 if index else 403,
            sent=chance.randrange(10_000, 90_000),
            received=chance.randrange(1000, 9000),
            model="m-20250929",
        )
        for index in range(13)
    )
    file = FileView(
        path=f"reports/{chance.randbytes(4).hex()}.md",
        kind="added",
        digest=f"sha256:{hashlib.sha256(chance.randbytes(8)).hexdigest()}",
        cites=("DEC-0001",),
        findings=(),
        diff=tuple(f"+{chance.randbytes(20).hex()}" for _ in range(8)),
        cut=0,
        why="",
    )
    members: dict[str, Any] = {
        "name": f"L{number % 2 + 1}-campaign-{arm}-p1-r{number // 2 + 1}",
        "line": number % 2 + 1,
        "probe": "PROBE-A",
        "tier": "campaign",
        "arm": arm,
        "repetition": number // 2 + 1,
        "rehearsal": False,
        "outcome": "recorded",
        "code": 0,
        "reasons": (),
        "answer_known": True,
        "answer": chance.choice(("yes", "no", None)),
        "dollars": chance.uniform(0.05, 0.4),
        "seconds": chance.uniform(10, 200),
        "turns": 13,
        "call_count": len(calls),
        "allowed": 12,
        "refused": 1,
        "opened": chance.random() < 0.5,
        "calls": calls,
        "requests": requests,
        "files": (file,),
        "left": (),
        "facts": (Fact("session image", DIGEST), Fact("times", f"session {chance.random():.3f} s")),
        "faults": (),
        "statements": (0,),
        "command": 0,
    }
    return SessionView(**{**members, **changes})


def batch(sessions: Sequence[SessionView], title: str = "made") -> BatchView:
    shared = Shared()
    shared.text("**The channel.** One `session` ran.")
    shared.command(("claude", "-p"))
    planned = [
        PlannedLine(1, "L1-campaign-present", "campaign", "present", None),
        PlannedLine(2, "L2-campaign-absent", "campaign", "absent", None),
    ]
    return batch_view(
        title, planned, sessions, shared, facts=[Fact("model", "m")], notes=[], limits="All shown."
    )


def many(count: int, seed: int = 1) -> BatchView:
    chance = random.Random(seed)
    return batch([session(number, chance) for number in range(count)])


def hostile() -> BatchView:
    """A batch in which every text that a session or a corpus chooses is an attack.

    As a view has it: gone through ``one_line``.
    """
    chance = random.Random(2)
    sessions = []
    for number, text in enumerate(map(one_line, HOSTILE)):
        plain = session(number, chance)
        sessions.append(
            session(
                number,
                chance,
                name=f"{text}{number}",
                probe=text,
                answer=text,
                outcome="refused" if number == 0 else "recorded",
                code=14 if number == 0 else 0,
                reasons=(text,),
                faults=(text,),
                left=(Fact(text, text),),
                facts=(Fact(text, text),),
                calls=tuple(
                    CallView(
                        number=1,
                        at=1.0,
                        end=2.0,
                        tool=text,
                        argument=text,
                        cut=0,
                        result=text,
                        mark="disagrees",
                        finding=text,
                        failed=True,
                        subagent=True,
                        request=1,
                    )
                    for _ in range(2)
                ),
                requests=tuple(
                    RequestView(
                        at=1.0,
                        seconds=None,
                        host=text,
                        asked=text,
                        outcome=text,
                        detail=text,
                        request=None,
                        status=403,
                        sent=None,
                        received=None,
                        model=text,
                    )
                    for _ in plain.requests[:2]
                ),
                files=(
                    FileView(
                        path=text,
                        kind=text,
                        digest=text,
                        cites=(text,),
                        findings=(text,),
                        diff=(text, f"+{text}"),
                        cut=1,
                        why=text,
                    ),
                ),
            )
        )
    shown = tuple(map(one_line, HOSTILE))
    shared = Shared(texts=list(shown), commands=[shown])
    planned = [
        PlannedLine(1, HOSTILE[0], HOSTILE[1], HOSTILE[2], None),
        PlannedLine(2, HOSTILE[3], HOSTILE[4], HOSTILE[5], None),
    ]
    return batch_view(
        HOSTILE[1],
        planned,
        sessions,
        shared,
        facts=[Fact(HOSTILE[0], HOSTILE[1])],
        notes=[HOSTILE[0]],
        limits=HOSTILE[0],
    )
