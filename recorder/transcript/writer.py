"""The one writer of events, identities and transcripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import UNSET, structs

from recorder.transcript.contract import Artifact, Call, Event, Identity
from recorder.transcript.scalar import encode

IDENTITY_HEADING = "## Run identity"
EVENTS_HEADING = "## Events"


def event_yaml(event: Event) -> str:
    """The event as one item of the Events block, newline at its end.

    Keys in the contract's order, every scalar a double-quoted string or ``null``; an absent
    key is not written and an empty list is ``[]``.
    """
    return "".join(f"{line}\n" for line in _event_lines(event))


def identity_yaml(identity: Identity) -> str:
    """The twelve members, one a line, in the contract's order."""
    return "".join(
        f"{key}: {value if isinstance(value, int) else encode(value)}\n"
        for key, value in structs.asdict(identity).items()
    )


def transcript_markdown(
    title: str,
    front_matter: Mapping[str, str],
    identity: Identity,
    prose_paragraphs: Sequence[str],
    events: Sequence[Event],
) -> str:
    """A whole transcript: front matter, the two fenced blocks, prose between them.

    Prose can hold no heading and no fence, so that no paragraph passes for a block.
    """
    parts = []
    if front_matter:
        members = "".join(f"{key}: {encode(value)}\n" for key, value in front_matter.items())
        parts.append(f"---\n{members}---\n")
    parts.append(f"# {_one_line(title)}\n")
    parts.append(f"{IDENTITY_HEADING}\n")
    parts.append(f"```yaml\n{identity_yaml(identity)}```\n")
    parts.extend(f"{_paragraph(text)}\n" for text in prose_paragraphs)
    parts.append(f"{EVENTS_HEADING}\n")
    block = "".join(event_yaml(event) for event in events) or "[]\n"
    parts.append(f"```yaml\n{block}```\n")
    return "\n".join(parts)


def _event_lines(event: Event) -> Iterator[str]:
    yield f"- probe: {encode(event.probe)}"
    yield f"  session: {encode(event.session)}"
    if event.calls is not UNSET:
        yield "  calls:" if event.calls else "  calls: []"
        for call in event.calls:
            yield from _call_lines(call)
    if event.produced is not UNSET:
        yield "  produced:" if event.produced else "  produced: []"
        for artifact in event.produced:
            yield from _artifact_lines(artifact)
    if event.answer is not UNSET:
        yield f"  answer: {'null' if event.answer is None else encode(event.answer)}"


def _call_lines(call: Call) -> Iterator[str]:
    yield f"    - tool: {encode(call.tool)}"
    yield f"      argument: {encode(call.argument)}"
    yield f"      result: {encode(call.result)}"


def _artifact_lines(artifact: Artifact) -> Iterator[str]:
    yield f"    - path: {encode(artifact.path)}"
    yield f"      result: {encode(artifact.result)}"
    yield from _list_lines("cites", artifact.cites)
    if artifact.findings is not UNSET:
        yield from _list_lines("findings", artifact.findings)


def _list_lines(key: str, values: Sequence[str]) -> Iterator[str]:
    yield f"      {key}:" if values else f"      {key}: []"
    for value in values:
        yield f"        - {encode(value)}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _paragraph(text: str) -> str:
    """A paragraph whose first character can open neither a heading nor a fence."""
    line = _one_line(text)
    return f"\\{line}" if line.startswith(("#", "`", "~", "-", "=")) else line
