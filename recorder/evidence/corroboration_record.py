"""A corroboration as evidence.json holds it, as the refusal it leads to, and as a table. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from recorder.evidence.corroboration import Corroboration
from recorder.evidence.document import CorroborationRecord, CostRecord, ForeignRequest
from recorder.refusal import ExitCode, Refusal

SHOWN_FINDINGS = 5


def record_of(found: Corroboration) -> CorroborationRecord:
    cost = found.cost
    return CorroborationRecord(
        agrees=found.agrees,
        blocks=found.blocks,
        corroborated=found.corroborated,
        normalised=found.normalised,
        results=found.results,
        texts=found.texts,
        unconfirmed=found.unconfirmed,
        unseen_texts=found.unseen_texts,
        not_shown=found.not_shown,
        thoughts_not_told=found.thoughts_not_told,
        own_words=found.own_words,
        requests=found.exchanges,
        used=found.used,
        only_at_provider=found.alone,
        token_counts=found.token_counts,
        foreign=tuple(
            ForeignRequest(
                request=each.request,
                model=each.model,
                session=each.session,
                used=each.used,
                why=each.why,
            )
            for each in found.foreign
        ),
        tools_changed=found.tools_changed,
        hooks_that_changed_a_call=found.hooks_that_changed_a_call,
        hooks_that_changed_a_result=found.hooks_that_changed_a_result,
        cost=CostRecord(
            harness=_text(cost.harness),
            table=_text(cost.table),
            foreign=_text(cost.foreign),
            difference=None if cost.difference is None else f"{cost.difference:.4f}",
            differs=cost.differs,
            table_date=cost.table_date,
            unknown_models=cost.unknown_models,
        ),
        findings=tuple(map(str, found.findings)),
    )


def require_agreement(record: CorroborationRecord, name: str) -> None:
    """Raises ``Refusal`` (14) where the witnesses disagree, with the first of the reasons."""
    if record.agrees:
        return
    shown = record.findings[:SHOWN_FINDINGS]
    more = len(record.findings) - len(shown)
    raise Refusal(
        ExitCode.WITNESSES,
        *(f"{name}: the witnesses disagree: {finding}" for finding in shown),
        *([f"{name}: and {more} more; see `recorder derive corroboration`"] if more else []),
    )


def rows(record: CorroborationRecord) -> Iterator[tuple[str, str]]:
    """The table that a person reads: what was counted, and how much of it."""
    yield "blocks of the stream", f"{record.corroborated} of {record.blocks} given by the provider"
    for member, count in record.normalised.items():
        yield "  normalised by the harness", f"{member}: {count}"
    yield "results told back", str(record.results)
    yield "texts told back", str(record.texts)
    yield "not told, the session ended", str(record.unconfirmed)
    yield "told and not shown", str(record.unseen_texts)
    yield "the harness's own words", str(record.own_words)
    yield "requests", f"{record.used} of {record.requests} answered what the stream shows"
    for reason, count in record.only_at_provider.items():
        yield "  only at the provider", f"{reason}: {count}"
    for each in record.foreign:
        used = "USED" if each.used else "not used"
        yield "  foreign", f"request {each.request}, {each.model}, {used}: {each.why}"
    yield "calls a hook changed", str(record.hooks_that_changed_a_call)
    yield "results a hook replaced", str(record.hooks_that_changed_a_result)
    yield "cost, the harness's figure", _dollars(record.cost.harness)
    yield f"cost, prices of {record.cost.table_date}", _dollars(record.cost.table)
    if record.cost.differs:
        yield "  they differ", f"{Decimal(record.cost.difference or 0) * 100:.2f} %"
    for model in record.cost.unknown_models:
        yield "  no price for", model
    for finding in record.findings:
        yield "DISAGREE", finding


def _text(value: Decimal | None) -> str | None:
    return None if value is None else f"{value:f}"


def _dollars(value: str | None) -> str:
    return "unknown" if value is None else f"{Decimal(value):.6f} dollars"
