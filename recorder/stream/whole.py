"""Whether a stream is a whole observation. What is missing is said apart from what is broken."""

from __future__ import annotations

from recorder.refusal import ExitCode, Refusal
from recorder.stream.observation import Observation


def whole_faults(
    observation: Observation, need_result: bool, name: str = "the stream"
) -> tuple[str, ...]:
    """One line a reason why the stream is not a whole observation; none where it is."""
    if observation.line_count == 0:
        return (f"{name} is empty: the harness printed nothing; see what it said on stderr",)
    reasons: list[str] = []
    bad = observation.first_bad_line
    if bad is not None:
        said = f" ({bad.detail})" if bad.detail else ""
        more = observation.bad_line_count - 1
        others = f", and {more} more {'line' if more == 1 else 'lines'} like it" if more else ""
        reasons.append(
            f"{name}, line {bad.number}, {bad.kind.value}{said}{others}: "
            "this is not what the harness prints; record the session again"
        )
    if observation.cut_last_line:
        reasons.append(
            f"{name}, line {observation.line_count}, is cut after {observation.cut_bytes} bytes: "
            "what followed was not observed; record the session again"
        )
    if not observation.inits and not reasons:
        reasons.append(
            f"{name} holds no init line (type system, subtype init), so it does not state what "
            "the session loaded; give the whole output of --output-format stream-json"
        )
    if need_result and observation.result is None and not reasons:
        reasons.append(
            f"{name} holds no result line: the session did not come to its end; "
            "record the session again"
        )
    return tuple(reasons)


def require_whole(
    observation: Observation, need_result: bool, name: str = "the stream"
) -> Observation:
    """The observation itself. Raises ``Refusal`` (13) with one line a reason."""
    reasons = whole_faults(observation, need_result, name)
    if reasons:
        raise Refusal(ExitCode.OBSERVATION, *reasons)
    return observation
