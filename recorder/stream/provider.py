"""The identity members that come from the provider: model, served version, cost in cents."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Literal

from recorder.stream.observation import ModelUsage, Observation
from recorder.transcript.contract import REHEARSAL_PREFIX

UNKNOWN_MODEL = "unknown"

_DATED = re.compile(r"(?P<name>.+)-[0-9]{8}", re.DOTALL)


class Unknown(enum.Enum):
    """A figure that nothing states. It is said to be unknown and never written as 0."""

    UNKNOWN = "unknown"


UNKNOWN: Literal[Unknown.UNKNOWN] = Unknown.UNKNOWN


@dataclass(frozen=True, slots=True)
class ProviderMembers:
    """``cost_cents`` is the harness's own figure of the whole session, in whole cents."""

    model: str
    served_version: str
    cost_cents: int | Unknown
    rehearsal: bool


def provider_members(observation: Observation) -> ProviderMembers:
    """The members as the last init and the last result line state them.

    The model is the last init line's, else the first usage entry in sorted order, else
    ``unknown``. The names of a rehearsal carry its prefix, so that they pass for no provider's.
    """
    result = observation.result
    usage = sorted(entry.name for entry in result.usage) if result else []
    stated = [init.model for init in observation.inits if init.model]
    model = stated[-1] if stated else usage[0] if usage else UNKNOWN_MODEL
    served = _served_version(observation, model)
    prefix = REHEARSAL_PREFIX if observation.rehearsal else ""
    dollars = result.cost_dollars if result else None
    return ProviderMembers(
        model=prefix + model,
        served_version=prefix + served,
        cost_cents=UNKNOWN if dollars is None else cents(dollars),
        rehearsal=observation.rehearsal,
    )


def cents(dollars: Decimal) -> int:
    """Whole cents, half a cent rounded away from zero: 0.005 is 1, 0.125 is 13, 0.58 is 58."""
    return int((dollars * 100).to_integral_value(rounding=ROUND_HALF_UP))


def _served_version(observation: Observation, model: str) -> str:
    """A dated name, where the provider exposed one for the session's own model; else the model.

    A usage entry counts where its canonical model is the session's: a subagent's model has an
    entry too. Some versions key the usage by the requested name alone, and then the provider's
    messages carry the date. Two dates of one model pin nothing, so the name stands.
    """
    own = _undated(model)
    for entry in sorted(observation.result.usage if observation.result else (), key=_by_name):
        if _DATED.fullmatch(entry.name) and (entry.canonical or _undated(entry.name)) == own:
            return entry.name
    answered = {
        name
        for name in observation.models_served
        if _DATED.fullmatch(name) and _undated(name) == own
    }
    return answered.pop() if len(answered) == 1 else model


def _by_name(entry: ModelUsage) -> str:
    return entry.name


def _undated(name: str) -> str:
    dated = _DATED.fullmatch(name)
    return dated["name"] if dated else name
