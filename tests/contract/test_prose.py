"""Sentences of a transcript: each from evidence, for one session and many, and never more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from recorder.evidence.document import (
    Attach,
    CheckRecord,
    Counts,
    Egress,
    Evidence,
    encode_evidence,
)
from recorder.evidence.egress import Asked, Fetch, phrase, summarise
from recorder.evidence.prose import REHEARSAL_STATEMENT, UNCOMPARED, statements
from recorder.session.harness import command_line
from tests.audit.sessions import HOST, Lines, allowed, decision, write_log

COUNTS = Counts(
    lines=3,
    bytes=100,
    calls=1,
    mcp_calls=0,
    web_calls=0,
    command_lifecycle_lines=0,
    outside_paths=(),
    hook_events={},
    dropped_blocks={},
)
EVIDENCE = Evidence(
    schema="recorder.evidence/1",
    recorder="0.1.0",
    probe="P",
    session="s",
    tier="campaign",
    arm="present",
    rehearsal=False,
    argv=command_line("task"),
    environment=("HOME", "PATH"),
    pinned=(),
    attach=Attach(query="", before_start=True, standard_input_once=True, engine_log="none"),
    ended="harness",
    exit_status=0,
    guard=None,
    harness_version="2.1.332",
    sidecar={},
    session_container={"HostConfig": {"NetworkMode": "none", "Binds": None}},
    sidecar_container={},
    counts=COUNTS,
    document_digests={},
    workspace=None,
    egress=Egress(
        host="api.anthropic.com",
        allowed=(),
        refused=(),
        fetches=(),
        not_forwarded=0,
        faults=(),
        policy="sha256:1",
    ),
    hook_log_lines=0,
    seconds={},
    max_turns=12,
    capped=False,
    arm_delta=(),
    arm_declared=(),
    not_enforced=(),
    refusal=None,
)


def counted(**changes: Any) -> Evidence:
    return structs.replace(EVIDENCE, counts=structs.replace(COUNTS, **changes))


def asked(**changes: Any) -> Evidence:
    return structs.replace(EVIDENCE, egress=structs.replace(EVIDENCE.egress, **changes))


def text_of(*sessions: Evidence) -> str:
    return "\n\n".join(statements(sessions))


def requests_to(*hosts: tuple[str, int]) -> tuple[Asked, ...]:
    return tuple(Asked(host=host, rule="", count=count) for host, count in hosts)


@pytest.mark.parametrize(
    ("sessions", "sentence"),
    [
        pytest.param(
            [asked(refused=requests_to(("h:443", 1)))],
            "The proxy allowed no request, and refused 1 request to `h:443`.",
            id="H34",
        ),
        pytest.param(
            [
                asked(
                    allowed=requests_to(("api:443", 2)),
                    refused=requests_to(("b:443", 1), ("a:443", 1), ("c:443", 2)),
                )
            ],
            "The proxy allowed 2 requests to `api:443`, and refused 2 requests to `c:443`, "
            "1 request to `a:443`, 1 request to `b:443`.",
            id="H34-by-count-then-name",
        ),
        pytest.param(
            [asked(refused=requests_to(("h:443", 1)))] * 3,
            "and refused 3 requests to `h:443`.",
            id="H34-summed",
        ),
        pytest.param(
            [asked(fetches=(Fetch(name="web_search_20250305", count=1),))],
            "it refused 1 request for `web_search_20250305` that asked the provider to reach "
            "another host or to run something, and no request whose head, method, path or body",
            id="H35",
        ),
        pytest.param(
            [asked(not_forwarded=2)],
            "it refused no request that asked the provider to reach another host or to run "
            "something, and 2 requests whose head, method, path or body",
            id="H35-not-forwarded",
        ),
        pytest.param(
            [counted(outside_paths=None)],
            "The paths outside its workspace are not counted.",
            id="N08-paths",
        ),
        pytest.param(
            [counted(mcp_calls=None)],
            "The calls to tools of an MCP server are not counted.",
            id="N08",
        ),
        pytest.param(
            [counted(mcp_calls=None), counted(mcp_calls=2)],
            "The sessions made 2 calls to a tool of an MCP server, with 1 session not counted.",
            id="N08-of-some",
        ),
        pytest.param(
            [counted(outside_paths=("/a",)), counted(outside_paths=("/b", "/c"))],
            "The sessions named 3 paths outside their workspace",
            id="N03-many",
        ),
        pytest.param(
            [structs.replace(EVIDENCE, capped=True, max_turns=80)],
            "The session stopped at the turn cap of 80.",
            id="N01",
        ),
        pytest.param(
            [structs.replace(EVIDENCE, capped=True), EVIDENCE, EVIDENCE],
            "1 of the 3 sessions stopped at the turn cap of 12.",
            id="N01-many",
        ),
        pytest.param(
            [EVIDENCE, EVIDENCE],
            "None of the 2 sessions stopped at the turn cap of 12.",
            id="N01-none",
        ),
        pytest.param(
            [structs.replace(EVIDENCE, arm="mcp", arm_declared=(".mcp.json",))],
            "The `mcp` arm is the present tree with `.mcp.json` added.",
            id="F31",
        ),
        pytest.param(
            [structs.replace(EVIDENCE, arm="no-hook", arm_declared=(".claude/hooks/intent.sh",))],
            "The `no-hook` arm is the present tree less `.claude/hooks/intent.sh`.",
            id="F32",
        ),
        pytest.param(
            [
                structs.replace(
                    EVIDENCE,
                    arm="absent",
                    arm_declared=("CLAUDE.md", ".claude", ".githooks", ".headwater"),
                )
            ],
            "The `absent` arm is the present tree less `CLAUDE.md`, `.claude`, `.githooks`, "
            "`.headwater`.",
            id="F33",
        ),
        pytest.param(
            [structs.replace(EVIDENCE, arm="no-hook")],
            "The delta of the `no-hook` arm of the `campaign` tier could not be read",
            id="F34",
        ),
        pytest.param([EVIDENCE], "of Claude Code 2.1.332 ran under recorder 0.1.0", id="version"),
        pytest.param([EVIDENCE], "`/session/config`", id="G04"),
        pytest.param([EVIDENCE], UNCOMPARED, id="does-not-compare"),
        pytest.param(
            [EVIDENCE],
            "The permission mode was `dontAsk`, and these tools were denied: `WebSearch,WebFetch`.",
            id="permissions",
        ),
        pytest.param(
            [structs.replace(EVIDENCE, not_enforced=("memory",))],
            "Limits the engine accepted and did not enforce: memory.",
            id="limits",
        ),
        pytest.param(
            [structs.replace(EVIDENCE, rehearsal=True)], REHEARSAL_STATEMENT, id="rehearsal"
        ),
    ],
)
def test_a_fact_of_the_evidence_is_a_sentence(sessions: list[Evidence], sentence: str) -> None:
    assert sentence in text_of(*sessions)


def test_f34_a_delta_that_is_not_known_is_never_the_present_tree() -> None:
    assert "arm is the present tree" not in text_of(structs.replace(EVIDENCE, arm="no-hook"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"argv": ("claude", "--permission-mode", "plan")}, "The permission mode was `plan`"),
        ({"session_container": {"HostConfig": {"NetworkMode": "host"}}}, "mode `host`"),
        ({"session_container": {"HostConfig": {"Binds": ["/:/h"]}}}, "1 bind mount,"),
    ],
)
def test_the_confinement_is_read_and_not_typed(change: dict[str, Any], says: str) -> None:
    assert says in text_of(structs.replace(EVIDENCE, **change))


CHECK = CheckRecord(
    command=("tool", "{workspace}"),
    over="workspace",
    baseline="sha256:b",
    exit_code=1,
    timed_out=False,
    findings=2,
    fault=None,
)


def test_the_check_is_named_with_what_it_read_and_found() -> None:
    none = structs.replace(CHECK, exit_code=None, findings=None)
    text = text_of(structs.replace(EVIDENCE, check=CHECK), structs.replace(EVIDENCE, check=none))
    assert "`tool {workspace}`, run once over the workspace as the session left it" in text
    assert "It ran for 1 session and reported 2 findings; for 1 session there was nothing" in text
    assert "no artifact carries findings" in text_of(EVIDENCE)


names = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=8)
evidences = st.builds(
    lambda mcp, web, outside, hooks, lines, capped, cap, refused, fetches, version: structs.replace(
        asked(
            refused=requests_to(*refused),
            fetches=tuple(Fetch(name=name, count=count) for name, count in fetches),
        ),
        counts=structs.replace(
            COUNTS, mcp_calls=mcp, web_calls=web, outside_paths=outside, hook_events=hooks
        ),
        hook_log_lines=lines,
        capped=capped,
        max_turns=cap,
        harness_version=version,
    ),
    st.none() | st.integers(0, 3),
    st.none() | st.integers(0, 3),
    st.none() | st.lists(names.map("/".__add__), max_size=3).map(tuple),
    st.dictionaries(names, st.integers(1, 3), max_size=2),
    st.none() | st.integers(0, 3),
    st.booleans(),
    st.none() | st.integers(1, 90),
    st.lists(st.tuples(names, st.integers(1, 3)), max_size=3),
    st.lists(st.tuples(names, st.integers(1, 3)), max_size=3),
    st.none() | names,
)


@given(st.lists(evidences, min_size=1, max_size=4))
def test_g22_whatever_happened_the_prose_is_whole_and_claims_no_more(
    sessions: list[Evidence],
) -> None:
    paragraphs = statements(sessions)
    for words in ("reachable", "could not read", "One channel stays open", "None ", "{}"):
        assert all(
            words not in paragraph or paragraph.startswith("None of") for paragraph in paragraphs
        )
    assert all("\n" not in paragraph and paragraph.endswith(".") for paragraph in paragraphs[:-1])
    # It is a function of evidence as it is written down, and of nothing else.
    again = [msgspec.json.decode(encode_evidence(each), type=Evidence) for each in sessions]
    assert statements(again) == paragraphs


LOG: Lines = (
    ("decision", decision()),
    ("decision", allowed(1)),
    (
        "decision",
        decision(
            asked={"host": HOST, "port": 443, "method": "POST", "path": "/v1/messages"},
            layer="body", rule="server-tool", detail="web_search_20250305",
        ),
    ),
    ("decision", decision(asked={"host": HOST}, layer="body", rule="body-mcp-servers")),
    ("decision", decision(asked={"host": HOST}, layer="request", rule="path")),
    ("decision", decision(asked={"host": HOST}, layer="body", rule="body-chunked")),
)  # fmt: skip


def test_h35_a_log_counts_what_asked_the_provider_to_reach_out(tmp_path: Path) -> None:
    summary = summarise(write_log(tmp_path, "s", LOG).read_bytes())
    assert summary.faults == ()
    assert summary.fetches == (
        Fetch(name="mcp_servers", count=1),
        Fetch(name="web_search_20250305", count=1),
    )
    assert summary.not_forwarded == 2
    assert (summary.allowed_count, summary.refused_count) == (1, 5)


def test_a_connection_without_a_host_is_told_as_one(tmp_path: Path) -> None:
    late = {"asked": {}, "layer": "head", "rule": "head-too-slow", "status": None}
    nothing = {"asked": {}, "layer": "connect", "rule": "nothing-asked", "status": None}
    log = write_log(
        tmp_path, "s", tuple(("decision", decision(**one)) for one in (nothing, nothing, late))
    )
    said = phrase(summarise(log.read_bytes()).refused, "refused")
    assert said == ("refused 2 connections that asked nothing, 1 connection that named no host")
