"""How many sessions tell two rates apart; pure.

Fleiss, Levin and Paik, Statistical Methods for Rates and Proportions, section 4.2: two
independent proportions, a two-sided test, equal arms, without and with the continuity correction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from recorder.plan.declaration import Power


@dataclass(frozen=True, slots=True)
class SampleSize:
    """Sessions an arm needs, rounded up: ``corrected`` with the continuity correction."""

    plain: int
    corrected: int

    def each(self, probes: int) -> int:
        """The repetitions of each probe, where ``probes`` probes are counted together."""
        return math.ceil(self.corrected / probes)


def sample_size(power: Power) -> SampleSize:
    """The sessions per arm that a declared difference needs."""
    one, two = power.present, power.absent
    middle = (one + two) / 2
    normal = NormalDist()
    level = normal.inv_cdf(1 - power.alpha / 2) * math.sqrt(2 * middle * (1 - middle))
    reach = normal.inv_cdf(power.power) * math.sqrt(one * (1 - one) + two * (1 - two))
    apart = abs(one - two)
    plain = ((level + reach) / apart) ** 2
    corrected = plain / 4 * (1 + math.sqrt(1 + 4 / (plain * apart))) ** 2
    return SampleSize(math.ceil(plain), math.ceil(corrected))
