"""What evidence counts in a stream: one function for the recording and for its verification."""

from __future__ import annotations

from recorder.evidence.document import Counts
from recorder.session.harness import WORKSPACE
from recorder.stream.observation import Observation
from recorder.stream.outside import outside_paths


def counts_of(observation: Observation) -> Counts:
    """The counts of one observed stream; None where it was not read whole, which is not 0."""
    return Counts(
        lines=observation.line_count,
        bytes=observation.byte_count,
        calls=len(observation.calls),
        mcp_calls=observation.mcp_calls,
        web_calls=observation.web_calls,
        command_lifecycle_lines=observation.command_lifecycle_lines,
        outside_paths=outside_paths(observation, WORKSPACE),
        hook_events=dict(observation.hook_events),
        dropped_blocks=dict(observation.dropped_blocks),
    )
