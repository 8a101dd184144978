"""What a transcript states in its prose: sentences made from evidence, never typed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from recorder.evidence.document import Evidence
from recorder.evidence.egress import Asked, fetch_phrase, fetches_of, phrase, requests
from recorder.session.container import SOCKET_DIRECTORY
from recorder.session.harness import CONFIGURATION_DIRECTORY, LOG_DIRECTORY, WORKSPACE
from recorder.workspace.arms import arm_sentence

REHEARSAL_STATEMENT = (
    "**This is a rehearsal and not a measurement.** A script answered in the provider's place, "
    "so no model took part, nothing was spent, and no rate may be read from it."
)


UNCOMPARED = (
    "A rate taken under this contract does not compare with a rate taken under another one."
)


def statements(sessions: Sequence[Evidence]) -> tuple[str, ...]:
    """The paragraphs for one or many sessions of one line, in the order they are printed."""
    first = sessions[0]
    paragraphs = [
        _channel(sessions),
        _confinement(sessions),
        _network(sessions),
        f"**The arm.** {arm_sentence(first.tier, first.arm, first.arm_declared)}",
        _witnesses(sessions),
        _turn_cap(sessions),
        _counts(sessions),
        _findings(sessions),
        _disciplines(sessions),
        UNCOMPARED,
    ]
    if any(evidence.rehearsal for evidence in sessions):
        paragraphs.insert(0, REHEARSAL_STATEMENT)
    return tuple(paragraph for paragraph in paragraphs if paragraph is not None)


def _channel(sessions: Sequence[Evidence]) -> str:
    versions = sorted({e.harness_version or "an unstated version" for e in sessions})
    before = all(evidence.attach.before_start for evidence in sessions)
    return (
        f"**The channel.** {_count(len(sessions), 'session')} of Claude Code "
        f"{', '.join(versions)} ran under recorder {sessions[0].recorder}. The events are read "
        f"from the container's attach pipe, opened {'before' if before else 'after'} the start and "
        "held by process 1, which runs under another uid than the session; the harness's file may "
        "be executed and not read, so no process of the session can open its output or its memory."
    )


def _confinement(sessions: Sequence[Evidence]) -> str:
    first = sessions[0]
    hosts = [evidence.session_container.get("HostConfig") or {} for evidence in sessions]
    networks = sorted({str(host.get("NetworkMode")) for host in hosts})
    binds = sum(len(host.get("Binds") or ()) for host in hosts)
    denied = sorted({_option(evidence, "--disallowedTools") for evidence in sessions})
    modes = sorted({_option(evidence, "--permission-mode") for evidence in sessions})
    text = (
        f"{'The session' if len(sessions) == 1 else 'Each session'} ran confined, in a container "
        f"of its own with the network mode {_named(networks)}, {_count(binds, 'bind mount')}, no "
        "capability and no new privileges. Its file system held the image's own files, which it "
        f"may not write; its workspace at `{WORKSPACE}`; its configuration directory "
        f"`{CONFIGURATION_DIRECTORY}`, which is its home too; its log directory `{LOG_DIRECTORY}`; "
        f"a private `/proc`, `/dev` and `/tmp`; and the proxy's socket under `{SOCKET_DIRECTORY}`, "
        f"read-only. {_credential(sessions)} The environment held "
        f"{_count(len(first.environment), 'variable')}, none of them the host's. The permission "
        f"mode was {_named(modes)}, and these tools were denied: {_named(denied)}."
    )
    if first.not_enforced:
        text += f" Limits the engine accepted and did not enforce: {', '.join(first.not_enforced)}."
    return f"**The confinement.** {text}"


def _credential(sessions: Sequence[Evidence]) -> str:
    """What of the host lay in the session: nothing, or its credential where that was copied."""
    held = [evidence.credential for evidence in sessions if evidence.credential is not None]
    if any(credential.copied for credential in held):
        return "One file of the host was in it: a copy of its credential, `.credentials.json`."
    if any(credential.form == "file" for credential in held):
        return (
            "No file of the host was in it; a `.credentials.json` with placeholders lay in its "
            "configuration directory."
        )
    return "No file of the host was in it."


def _option(evidence: Evidence, name: str) -> str:
    """What follows an option in the harness's own command line."""
    words = iter(evidence.argv)
    return next((next(words, "") for word in words if word == name), "unstated")


def _named(values: Sequence[str]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _network(sessions: Sequence[Evidence]) -> str:
    first = sessions[0].egress
    allowed = _merged([e.egress.allowed for e in sessions])
    refused = _merged([e.egress.refused for e in sessions])
    fetches: Counter[str] = Counter()
    for evidence in sessions:
        fetches.update({fetch.name: fetch.count for fetch in evidence.egress.fetches})
    not_forwarded = sum(e.egress.not_forwarded for e in sessions)
    return (
        f"**The network.** {'It' if len(sessions) == 1 else 'Each'} had no network of its own: the "
        "loopback interface alone, no route and no resolver, so that a direct connection to any "
        "host is refused. The one way out was a unix socket to a proxy, under policy "
        f"`{first.policy}`, which forwards to `{first.host}` alone and reads each request whole "
        f"first. The proxy {phrase(allowed, 'allowed')}, and {phrase(refused, 'refused')}. Of "
        f"these it refused {fetch_phrase(fetches_of(fetches))} that asked the provider to reach "
        f"another host or to run something, and {requests(not_forwarded)} whose head, method, path "
        f"or body it does not forward.{_bounds(sessions)}"
    )


def _bounds(sessions: Sequence[Evidence]) -> str:
    """What sessions used up, each bound once with how many met it; empty where none did."""
    met = Counter(e.egress.bound.said for e in sessions if e.egress.bound is not None)
    return "".join(
        f" {_count(count, 'session')} had used up {limit}, and nothing more of "
        f"{'it' if count == 1 else 'them'} was let out."
        for limit, count in sorted(met.items())
    )


def _turn_cap(sessions: Sequence[Evidence]) -> str | None:
    cap = sessions[0].max_turns
    named = "a turn cap" if cap is None else f"the turn cap of {cap}"
    stopped = sum(evidence.capped for evidence in sessions)
    if len(sessions) == 1:
        return f"The session stopped at {named}." if stopped else None
    if cap is None and not stopped:
        return "No turn cap was set."
    return f"{stopped or 'None'} of the {len(sessions)} sessions stopped at {named}."


def _findings(sessions: Sequence[Evidence]) -> str | None:
    checks = [evidence.check for evidence in sessions if evidence.check is not None]
    if not checks:
        if any(evidence.disciplines is not None for evidence in sessions):
            return None
        return "**The findings.** The corpus declares no check, so no artifact carries findings."
    first = checks[0]
    over = (
        "over the workspace as the session left it"
        if first.over == "workspace"
        else "over one copy of the corpus that held everything the session changed"
    )
    ran = [check.findings for check in checks if check.findings is not None]
    return (
        f"**The findings.** They are those of `{' '.join(first.command)}`, run once {over}, in a "
        "container without a network. Its own files are those of the present tree "
        f"(`{first.baseline}`) and never the session's. It ran for "
        f"{_count(len(ran), 'session')} and reported {_count(sum(ran), 'finding')}; for "
        f"{_count(len(checks) - len(ran), 'session')} there was nothing to check."
    )


def _disciplines(sessions: Sequence[Evidence]) -> str | None:
    found = [evidence.disciplines for evidence in sessions if evidence.disciplines is not None]
    if not found:
        return None
    beside = any(evidence.check is not None for evidence in sessions)
    left = sum(len(each.not_judged) for each in found)
    return (
        f"**The disciplines.** Findings are {'also ' if beside else ''}the entries of "
        f"`{found[0].file}` (`{found[0].digest}`) that an artifact breaks, judged from its own "
        "text, the text before it and the other files of its tree: no call, no probe. Of "
        f"{_count(sum(each.judged or 0 for each in found), 'artifact')} judged, they report "
        f"{_count(sum(each.findings or 0 for each in found), 'finding')}; for "
        f"{_count(left, 'artifact')} an entry could not say, and there is no list."
    )


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
    hidden = sum(c.not_shown for c in found)
    if hidden:
        sentences.append(
            f"{_count(hidden, 'block')} of subagents' answers are not shown: texts of those in the "
            "foreground, and all of those that a subagent ran."
        )
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
    replaced = sum(c.hooks_that_changed_a_result for c in found)
    if replaced:
        sentences.append(
            f"Hooks of the workspace replaced {_count(replaced, 'result')} after the call ran, so "
            "what the model was told is not what the tool gave."
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
    who, its = ("The session", "its") if len(sessions) == 1 else ("The sessions", "their")
    outside = [None if (p := e.counts.outside_paths) is None else len(p) for e in sessions]
    hooks: Counter[str] = Counter()
    for evidence in sessions:
        hooks.update(evidence.counts.hook_events)
    events = ", ".join(f"{count} of {name}" for name, count in sorted(hooks.items()))
    lifecycle = sum(e.counts.command_lifecycle_lines for e in sessions)
    sentences = (
        _counted(
            outside,
            f"{who} named {{}} outside {its} workspace that the confinement does not bind, and "
            "no file of the host lies at one",
            "path",
            f"the paths outside {its} workspace",
        ),
        _counted(
            [e.counts.mcp_calls for e in sessions],
            f"{who} made {{}} to a tool of an MCP server",
            "call",
            "the calls to tools of an MCP server",
        ),
        _counted(
            [e.counts.web_calls for e in sessions],
            f"{who} made {{}} to a web tool",
            "call",
            "the calls to web tools",
        ),
        f"The stream shows hooks of the workspace: {events}."
        if events
        else "The stream shows no hook of the workspace.",
        _counted(
            [e.hook_log_lines for e in sessions],
            f"Hooks wrote {{}} to {its} log directory, which is self-reported, because a session "
            "may write there itself",
            "line",
            f"the lines in {its} log directory",
        ),
        f"{_count(lifecycle, 'message')} reached a harness through its own command channel.",
    )
    return f"**Counts.** {' '.join(sentences)}"


def _counted(counts: Sequence[int | None], sentence: str, noun: str, what: str) -> str:
    """A sentence with the sum; what was not counted in a session is said and is never 0."""
    known = [count for count in counts if count is not None]
    uncounted = len(counts) - len(known)
    if not known:
        return f"{what[0].upper()}{what[1:]} are not counted."
    said = sentence.format(_count(sum(known), noun))
    return f"{said}, with {_count(uncounted, 'session')} not counted." if uncounted else f"{said}."


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
