"""What ``check`` refuses, and that it names line, block and key."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from recorder.refusal import ExitCode, Refusal
from recorder.transcript.checker import check
from recorder.transcript.file import check_file

GOOD = """---
tier: x
---

# Title

## Run identity

```yaml
model: claude-sonnet-5
served_version: claude-sonnet-5
tree: sha256:0
lock: sha256:1
selection: sha256:2
read_set: sha256:3
seed: 0
harness: 0.5.0
tier: regression
arm: present
at: 2026-10-03
cost_cents: 184
```

Prose, and a block that is none of ours:

```text
## Events
```

## Events

```yaml
- probe: PROBE-A
  session: 1
  calls:
    - tool: Read
      argument: "a.md"
      result: ""
  produced:
    - path: out.md
      result: sha256:9
      cites: []
      findings: []
  answer: no
```
"""


def refused(text: str) -> tuple[str, ...]:
    with pytest.raises(Refusal) as refusal:
        check(text, "t.md")
    assert refusal.value.code is ExitCode.CORRUPT
    assert all(reason.startswith("t.md, line ") for reason in refusal.value.reasons)
    assert all("\n" not in reason for reason in refusal.value.reasons)
    return refusal.value.reasons


def line_of(text: str, part: str) -> int:
    return next(i for i, line in enumerate(text.split("\n"), 1) if part in line)


def test_a_transcript_that_keeps_the_contract() -> None:
    checked = check(GOOD, "t.md")
    assert checked.identity.at == "2026-10-03"
    assert checked.identity.harness == "0.5.0"
    assert checked.events[0].answer == "no"
    assert checked.events[0].session == "1"
    assert checked.summary() == "t.md: 1 event, tier regression, arm present"
    assert check(GOOD.replace("\n", "\r\n"), "t.md").events == checked.events


def test_the_real_transcripts_pass(shared: Path) -> None:
    runs = sorted((shared / "conformance" / "headwater" / "probe-runs").glob("*.md"))
    assert len(runs) == 2
    for run in runs:
        assert check_file(run).events
        assert not check_file(run).rehearsal
    fixtures = shared / "conformance" / "headwater" / "fixtures"
    for name in ("transcript", "transcript-missed", "transcript-refused"):
        assert check_file(fixtures / f"{name}.md").events


def test_a_transcript_with_prose_is_refused_for_its_key(shared: Path) -> None:
    """S11"""
    path = shared / "conformance" / "headwater" / "fixtures" / "transcript-with-prose.md"
    with pytest.raises(Refusal) as refusal:
        check_file(path)
    (reason,) = refusal.value.reasons
    assert refusal.value.code is ExitCode.CORRUPT
    assert f"{path}, line 36: Events block, event 1, key reasoning" in reason


@pytest.mark.parametrize(
    ("after", "extra", "place"),
    [
        ("model: claude-sonnet-5", "thinking: x", "Run identity block, key thinking"),
        ("  session: 1", "  thinking: x", "Events block, event 1, key thinking"),
        ('      argument: "a.md"', "      thinking: x", "call 1, key thinking"),
        ("      result: sha256:9", "      thinking: x", "artifact 1, key thinking"),
    ],
    ids=["identity", "L42-event", "call", "artifact"],
)
def test_an_extra_key_in_any_of_the_four_places(after: str, extra: str, place: str) -> None:
    text = GOOD.replace(f"{after}\n", f"{after}\n{extra}\n")
    (reason,) = refused(text)
    assert place in reason
    assert f"line {line_of(text, 'thinking')}:" in reason


@pytest.mark.parametrize(
    "key",
    ["model", "served_version", "tree", "lock", "selection", "read_set", "seed", "harness",
     "tier", "arm", "at", "cost_cents"],
)  # fmt: skip
def test_each_identity_member_is_required(key: str) -> None:
    lines = GOOD.split("\n")
    at = lines.index("```yaml") + 1
    kept = lines[:at] + [
        line for line in lines[at : at + 12] if not line.startswith(f"{key}: ")
    ] + lines[at + 12 :]  # fmt: skip
    (reason,) = refused("\n".join(kept))
    assert f"Run identity block, key {key}: is missing" in reason


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("tier: regression", "tier: pilot", "key tier: pilot is not one of regression"),
        ("arm: present", "arm: both", "key arm: both is not one of present"),
        ("cost_cents: 184", "cost_cents: 18.4", "whole number of cents"),
        ("cost_cents: 184", "cost_cents: -1", "whole number of cents"),
        ("cost_cents: 184", 'cost_cents: "184"', "whole number of cents"),
        ("cost_cents: 184", "cost_cents: null", "whole number of cents"),
        ("cost_cents: 184", "cost_cents: 0184", "whole number of cents"),
        ("cost_cents: 184", "cost_cents: unknown", "whole number of cents"),
        ("seed: 0", "seed: zero", "key seed: is not a whole number"),
        ("model: claude-sonnet-5\n", "model:\n", "key model: is not a string"),
        ("model: claude-sonnet-5\n", 'model: ""\n', "key model: is empty"),
        ("lock: sha256:1", "lock: [a]", "key lock: is not a string"),
        ("- probe: PROBE-A\n  session: 1\n", "- session: 1\n", "key probe: is missing"),
        ("  session: 1\n", "", "key session: is missing"),
        ("      result: \"\"\n", "", "call 1, key result: is missing"),
        ("      cites: []\n", "", "artifact 1, key cites: is missing"),
        ("findings: []", "findings: null", "key findings: is not a list"),
        ("findings: []", "findings: [null]", "key findings: is not a string"),
        ("  answer: no", "  answer: [no]", "key answer: is not a string"),
        ("  answer: no", "  answer: no\n  answer: no", "key answer: is written twice"),
        ("model: claude-sonnet-5\n", "model: &a claude-sonnet-5\n", "an anchor or an alias"),
        ("at: 2026-10-03", "at: !!timestamp 2026-10-03", "holds the tag"),
        ("at: 2026-10-03", "at: [[[[[[[[[1]]]]]]]]]", "nested too deeply"),
        ("at: 2026-10-03", "at: 'x", "found unexpected end"),
        ("seed: 0", "? [a]\n: b\nseed: 0", "not a name"),
        ("## Events\n\n```yaml", "## Event\n\n```yaml", "no heading ## Events"),
        ("# Title", "## Events\n", "a second heading ## Events"),
        ("```yaml\n- probe", "```\n- probe", "no fenced yaml block"),
        ("Prose,", "```yaml\na: b\n```\n", "a second yaml block"),
    ],
)  # fmt: skip
def test_each_fault_has_its_reason(old: str, new: str, words: str) -> None:
    text = GOOD.replace(old, new, 1)
    assert text != GOOD
    assert any(words in reason for reason in refused(text))


@pytest.mark.parametrize("key", ["calls", "produced"])
def test_null_is_not_a_list_and_absent_is_not_empty(key: str) -> None:
    lines = GOOD.split("\n")
    at = lines.index(f"  {key}:")
    end = next(i for i in range(at + 1, len(lines)) if not lines[i].startswith("    "))
    absent = check("\n".join(lines[:at] + lines[end:]), "t.md").events[0]
    empty = check("\n".join([*lines[:at], f"  {key}: []", *lines[end:]]), "t.md").events[0]
    assert getattr(empty, key) == ()
    assert getattr(absent, key) != ()
    for value in ("null", "~", "", '""', "{}"):
        text = "\n".join([*lines[:at], f"  {key}: {value}", *lines[end:]])
        assert "is not a list" in refused(text)[0]


def test_an_unclosed_fence_is_refused() -> None:
    assert "not closed" in refused(GOOD.rstrip().removesuffix("```"))[0]


def test_every_fault_is_listed_in_the_file_s_order() -> None:
    text = GOOD.replace("tier: regression", "tier: x").replace("  answer: no", "  why: x")
    text = text.replace("seed: 0\n", "")
    reasons = refused(text)
    assert ["seed" in reasons[0], "tier" in reasons[1], "why" in reasons[2]] == [True] * 3


def test_a_rehearsal_is_said_to_be_one() -> None:
    for key in ("model", "served_version"):
        text = GOOD.replace(f"{key}: claude", f"{key}: rehearsal/claude")
        checked = check(text, "t.md")
        assert checked.rehearsal
        assert "rehearsal" in checked.summary()


def test_a_file_that_cannot_be_read_is_usage(tmp_path: Path) -> None:
    for name, content in (("missing.md", None), ("latin.md", b"a\n\xe9\n"), ("dir", None)):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        elif name == "dir":
            path.mkdir()
        with pytest.raises(Refusal, match=name) as refusal:
            check_file(path)
        assert refusal.value.code is ExitCode.USAGE


@given(
    st.text(max_size=60) | st.lists(st.sampled_from(GOOD.split("\n")), max_size=40).map("\n".join)
)
def test_any_text_is_read_or_refused(text: str) -> None:
    with pytest.raises(Refusal) as refusal:
        raise_or_check(text)
    assert refusal.value.code is ExitCode.CORRUPT
    assert refusal.value.reasons


def raise_or_check(text: str) -> None:
    """Texts that happen to keep the contract are not this property's."""
    check(text, "t.md")
    assume(False)
