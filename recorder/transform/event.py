"""The event of one session: a pure function of what was observed and what the workspace holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import UNSET

from recorder.stream.answer import derive_answer
from recorder.stream.observation import Observation
from recorder.transcript.contract import Artifact, Call, Event
from recorder.transform.produced import ProducedFile


def build_event(
    observation: Observation,
    *,
    probe: str,
    session: str,
    document_digest: Callable[[str], str],
    produced: Sequence[ProducedFile] | None,
    answers: Sequence[str] | None,
) -> Event:
    """The event of a session that was watched.

    ``document_digest`` gets the path as a call named it and gives ``sha256:<hex>`` of the
    document as the workspace holds it, or ``""``. ``produced`` is None where it could not be
    watched whole, and then the event has no such key. ``answers`` is None for a probe without a
    closed set, and then, as for a capped session, the answer is ``None``: watched, and none.
    """
    return Event(
        probe=probe,
        session=session,
        calls=tuple(
            Call(
                tool=call.tool,
                argument=call.argument,
                result=document_digest(call.path) if call.path else "",
            )
            for call in observation.calls
        ),
        produced=UNSET
        if produced is None
        else tuple(
            Artifact(path=file.path, result=file.sha256, cites=file.cites, findings=file.findings)
            for file in produced
        ),
        answer=derive_answer(observation.final_text, answers) if answers else None,
    )
