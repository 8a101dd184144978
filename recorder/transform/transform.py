"""From a stream to the text of its event: nothing is given out until the whole event is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from recorder.stream.observation import Observation, observe
from recorder.stream.whole import require_whole
from recorder.transcript.contract import Event
from recorder.transcript.writer import event_yaml
from recorder.transform.event import build_event
from recorder.transform.produced import ProducedFile, places_of, produced_paths

CONFIGURATION_DIRECTORY = "/session/config"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformOptions:
    """What the transform is told beside the stream.

    Both callables get a *placed* path: relative to the workspace inside it, absolute outside.
    ``document_digest`` gives ``sha256:<hex>`` of the document, or ``""`` where the workspace
    holds none; ``produced_file`` reads an artifact. ``workspaces`` are names of the workspace
    beside the one that the init line states.
    """

    probe: str
    session: str
    document_digest: Callable[[str], str]
    produced_file: Callable[[str], ProducedFile]
    answers: tuple[str, ...] | None = None
    named: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    workspaces: tuple[str, ...] = ()
    configuration_directories: tuple[str, ...] = (CONFIGURATION_DIRECTORY,)
    need_result: bool = False
    stream_name: str = "the stream"


def transform(chunks: Iterable[bytes], options: TransformOptions) -> str:
    """The text of the event. Raises ``Refusal`` (13) for a stream that is not whole."""
    return event_yaml(transform_observation(observe(chunks), options))


def transform_observation(observation: Observation, options: TransformOptions) -> Event:
    """The event of a stream already observed."""
    require_whole(observation, options.need_result, options.stream_name)
    places = places_of(observation, options.workspaces, options.configuration_directories)
    paths = produced_paths(observation, places, options.named, options.changed)
    return build_event(
        observation,
        probe=options.probe,
        session=options.session,
        document_digest=lambda path: options.document_digest(places.place(path)),
        produced=tuple(options.produced_file(path) for path in paths),
        answers=options.answers,
    )
