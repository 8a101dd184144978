"""A plan as the text that ``headwater probe plan`` prints for the same corpus."""

from __future__ import annotations

from collections.abc import Iterator

from recorder.plan.composition import Plan, dollars
from recorder.plan.declaration import DECLARATION, Tier
from recorder.plan.probes import Probe

REFUSAL_HEADING = "## This run does not start"


def render_plan(plan: Plan) -> str:
    """The whole text with its last line feed.

    A plan that refuses lists no selection and no read set; its price is there where a ceiling
    was read.
    """
    return "\n".join(_sections(plan))


def _sections(plan: Plan) -> Iterator[str]:
    yield (
        f"A {plan.tier_name} probe run over {len(plan.selected)} of the {plan.classified} "
        "classified documents of this corpus.\n"
    )
    if plan.refusal is not None:
        yield f"{REFUSAL_HEADING}\n\n{plan.refusal}\n"
    if plan.selected:
        yield _identity(plan)
    if plan.tier is not None:
        yield _cost(plan, plan.tier)
    if plan.refusal is None:
        yield _selection(plan)
        yield _read_set(plan)
        yield _WRITES_BACK


def render_members(plan: Plan) -> str:
    """The six members, a line each."""
    members = plan.identity_members
    return (
        f"lock: {members.lock}\n"
        f"tree: {members.tree}\n"
        f"selection: {members.selection}\n"
        f"read_set: {members.read_set}\n"
        f"seed: {members.seed}\n"
        f"harness: {members.harness}\n"
    )


def _identity(plan: Plan) -> str:
    return (
        "## The run identity this plan fixes\n\n"
        "```yaml\n"
        f"{render_members(plan)}"
        f"tier: {plan.tier_name}\n"
        f"arms: [{', '.join(plan.arms)}]\n"
        "```\n\n"
        "The model, its served version, the wall-clock time and the realized cost belong to "
        "the run. The recorder writes those four into the transcript, and `headwater probe "
        "record` holds the rest of the identity to the six above.\n"
    )


def _cost(plan: Plan, tier: Tier) -> str:
    text = (
        "## The cost\n\n"
        f"{len(plan.selected)} probes x {len(plan.arms)} arms x {plan.repetitions} repetitions "
        f"= {plan.sessions} sessions, at a declared {dollars(plan.session_cost_cents)} each: "
        f"{dollars(plan.projected_cents)} against a ceiling of "
        f"{dollars(tier.budget_cents)}.\n"
        f"The unit cost is a number a person declared in `{DECLARATION}`. No run has happened, "
        "so no realized cost has been recorded against it and this is arithmetic rather than "
        "a forecast.\n"
    )
    if plan.max_turns is not None:
        text += f"Each session stops at a turn cap of {plan.max_turns}.\n"
    return text


def _selection(plan: Plan) -> str:
    probes = "".join(_probe(plan, probe) for probe in plan.selected)
    return f"## The selection\n\n{probes}"


def _probe(plan: Plan, probe: Probe) -> str:
    text = (
        f"- {probe.id} ({probe.path})\n"
        f"    category: {probe.category}\n"
        f"    expects: {probe.expectation}\n"
    )
    if probe.answers:
        text += f"    answers: {', '.join(probe.answers)}\n"
    if examined := plan.examined[probe.id]:
        named = ", ".join(f"{item.identifier} at {item.path}" for item in examined)
        text += f"    examines: {named}\n"
    if probe.expectation == "patched":
        text += f"    oracle: {probe.oracle}\n"
    return text


def _read_set(plan: Plan) -> str:
    rows = "".join(f"- {item.path} ({item.kind}) {item.digest}\n" for item in plan.read_set)
    return (
        "## The read set\n\n"
        f"{len(plan.read_set)} documents the `read_set` digest above covers, which is every "
        "probe of the selection and every document one of them examines:\n\n"
        f"{rows}\n"
        "A recorded result is stale when a document of this list moves, and it is not stale "
        "when any other document of this corpus moves. That is the whole of what the digest "
        "buys over the `tree` digest beside it, which moves on every commit.\n"
    )


_WRITES_BACK = (
    "## What the recorder writes back\n\n"
    "One `probe_transcript` document on `docs/probe-runs/`, then `headwater probe record "
    "<path>`. The transcript is the ordered tool-call events of each session, and it holds no "
    "model prose: the intake refuses a key outside the closed set, which is how the omission "
    "is enforced rather than asked for.\n\n"
    "**A transcript that an agent wrote about its own session is a self-report, and spec 5 "
    "refuses one.** The events have to be observed from outside the session by the process "
    "that drove it. That process reaches the network and it is not in this repository, so no "
    "verb here writes a transcript and there is no flag that makes one.\n"
)
