"""What a transcript states in its prose: sentences made from evidence, never typed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from recorder.evidence.document import Evidence
from recorder.evidence.egress import Asked, phrase
from recorder.session.harness import CONFIGURATION_DIRECTORY

REHEARSAL_STATEMENT = (
    "**This is a rehearsal and not a measurement.** A script answered in the provider's place, "
    "so no model took part, nothing was spent, and no rate may be read from it."
)


def statements(sessions: Sequence[Evidence]) -> tuple[str, ...]:
    """The paragraphs for one or many sessions of one line, in the order they are printed."""
    first = sessions[0]
    paragraphs = []
    if any(evidence.rehearsal for evidence in sessions):
        paragraphs.append(REHEARSAL_STATEMENT)
    versions = sorted({e.harness_version or "an unstated version" for e in sessions})
    paragraphs.append(
        f"**The channel.** {_count(len(sessions), 'session')} of Claude Code "
        f"{', '.join(versions)} ran under recorder {first.recorder}. The events are read from the "
        "container's attach pipe, opened before the start and held by process 1, which runs under "
        "another uid than the session; the harness's file may be executed and not read, so no "
        "process of the session can open its output or its memory."
    )
    paragraphs.append(
        "**The confinement.** Each session ran in a container of its own with no network, no "
        "capability, no new privileges and no bind mount, with its workspace at `/workspace` and "
        f"`{CONFIGURATION_DIRECTORY}` as its home and configuration directory, empty at the start. "
        f"The environment held {_count(len(first.environment), 'variable')} and none of the host. "
        "WebSearch and WebFetch were denied, and the permission mode was dontAsk."
    )
    allowed = _merged([e.egress.allowed for e in sessions])
    refused = _merged([e.egress.refused for e in sessions])
    paragraphs.append(
        "**The network.** The one way out was a unix socket to a proxy, under policy "
        f"`{first.egress.policy}`. The proxy {phrase(allowed, 'allowed')}, and "
        f"{phrase(refused, 'refused')}."
    )
    if first.arm_delta:
        delta = ", ".join(f"`{line}`" for line in first.arm_delta)
        paragraphs.append(
            f"**The arm.** The `{first.arm}` arm is the corpus with these changes: {delta}."
        )
    else:
        paragraphs.append(f"**The arm.** The `{first.arm}` arm is the present tree.")
    if witnesses := _witnesses(sessions):
        paragraphs.append(witnesses)
    paragraphs.append(_counts(sessions))
    if first.not_enforced:
        paragraphs.append(
            f"**Limits the engine accepted and did not enforce:** {', '.join(first.not_enforced)}."
        )
    paragraphs.append(
        "A rate taken under this contract does not compare with a rate taken under another one."
    )
    return tuple(paragraphs)


def _witnesses(sessions: Sequence[Evidence]) -> str | None:
    """What the join of the stream with the proxy's log found; None where no session has one."""
    found = [e.corroboration for e in sessions if e.corroboration is not None]
    if not found:
        return None
    seen = (
        f"The proxy saw the provider give {_count(sum(c.corroborated for c in found), 'block')} of "
        f"the {sum(c.blocks for c in found)} that the streams show, each in an answer to its own "
        "conversation, and saw the harness tell back "
        f"{_count(sum(c.results for c in found), 'result')} as the streams show them; "
        f"{sum(c.unconfirmed for c in found)} were never told, because a session ended first."
    )
    sentences = [seen]
    normalised: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    for corroboration in found:
        normalised.update(corroboration.normalised)
        alone.update(corroboration.only_at_provider)
    if normalised:
        members = ", ".join(f"{count} of {name}" for name, count in sorted(normalised.items()))
        sentences.append(f"The harness normalised inputs of calls: {members}.")
    if alone:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(alone.items()))
        sentences.append(f"Only the provider saw these answers: {reasons}.")
    foreign = [each for corroboration in found for each in corroboration.foreign]
    if foreign:
        models = ", ".join(sorted({each.model or "no model" for each in foreign}))
        sentences.append(
            f"{_count(len(foreign), 'request')} ({models}) came from another process of a session "
            "than its harness."
        )
    unseen = sum(c.unseen_texts for c in found)
    if unseen:
        sentences.append(f"The provider was told {_count(unseen, 'text')} that no stream shows.")
    changed = sum(c.hooks_that_changed_a_call for c in found)
    if changed:
        sentences.append(
            f"Hooks of the workspace changed {_count(changed, 'call')} before it ran, so what was "
            "done is not what is recorded there."
        )
    differing = [c.cost for c in found if c.cost.differs]
    if differing:
        sentences.append(
            f"In {_count(len(differing), 'session')} the harness's cost and the price table of "
            f"{differing[0].table_date} are more than 1 % apart."
        )
    disagreeing = sum(not c.agrees for c in found)
    if disagreeing:
        sentences.append(f"In {_count(disagreeing, 'session')} the two disagree.")
    return f"**The witnesses.** {' '.join(sentences)}"


def _counts(sessions: Sequence[Evidence]) -> str:
    sentences = []
    outside = [e.counts.outside_paths for e in sessions]
    uncounted = sum(paths is None for paths in outside)
    named = sum(len(paths) for paths in outside if paths is not None)
    sentences.append(f"The sessions named {_count(named, 'path')} outside their workspace.")
    if uncounted:
        sentences.append(f"{_count(uncounted, 'session')} could not be counted for it.")
    calls = [e.counts.mcp_calls for e in sessions if e.counts.mcp_calls is not None]
    sentences.append(f"They made {_count(sum(calls), 'call')} to a tool of an MCP server.")
    hooks: Counter[str] = Counter()
    for evidence in sessions:
        hooks.update(evidence.counts.hook_events)
    if hooks:
        events = ", ".join(f"{count} of {name}" for name, count in sorted(hooks.items()))
        sentences.append(f"The stream shows hook events: {events}.")
    lines = [e.hook_log_lines for e in sessions if e.hook_log_lines is not None]
    sentences.append(
        f"Their hooks wrote {_count(sum(lines), 'line')} to the log directory, which the sessions "
        "can write themselves, so that number is self-reported."
    )
    lifecycle = sum(e.counts.command_lifecycle_lines for e in sessions)
    sentences.append(
        f"{_count(lifecycle, 'message')} reached a harness through its own command channel."
    )
    return f"**Counts.** {' '.join(sentences)}"


def _merged(lists: Sequence[Sequence[Asked]]) -> tuple[Asked, ...]:
    counts: Counter[tuple[str, str]] = Counter()
    for items in lists:
        for item in items:
            counts[item.host, item.rule] += item.count
    return tuple(
        Asked(host=host, rule=rule, count=count) for (host, rule), count in sorted(counts.items())
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
