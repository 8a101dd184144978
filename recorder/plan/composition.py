"""A plan composed natively: the selection, the six members of the identity, and the price.

The formulas are those of the engine whose plans this one stands in for; each was recomputed
over its fixtures. Everything but ``compose_plan`` is a pure function of a census.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import recorder
from recorder.plan.census import Census, lock_digest, take_census
from recorder.plan.declaration import ADDING_ARMS, Declaration, Tier, load_declaration
from recorder.plan.probes import CATEGORIES, NAMES_DOCUMENTS, Document, Probe, ProbeFault
from recorder.refusal import ExitCode, Refusal
from recorder.transcript.contract import TIERS


@dataclass(frozen=True, slots=True)
class IdentityMembers:
    """The six members that exist before any session starts, in the order they are written."""

    lock: str
    tree: str
    selection: str
    read_set: str
    seed: int
    harness: str


@dataclass(frozen=True, slots=True)
class Examined:
    """What a probe examines. ``path`` is a document's, or the anchor itself outside of them."""

    identifier: str
    path: str


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """One line of the read set."""

    path: str
    kind: str
    digest: str


@dataclass(frozen=True)
class Plan:
    """What a run would cover and cost. Money is whole US cents.

    ``refusal`` is why the run does not start, None where it does. A plan that refuses over a
    probe selects nothing; one that refuses over its price keeps its selection for whoever
    grades a run that was recorded. ``tier`` is the declared tier, None where there is none.
    """

    tier_name: str
    tier: Tier | None
    identity_members: IdentityMembers
    selected: tuple[Probe, ...]
    examined: dict[str, tuple[Examined, ...]]
    read_set: tuple[ReadDocument, ...]
    classified: int
    arms: tuple[str, ...]
    repetitions: int
    refusal: str | None

    @property
    def max_turns(self) -> int | None:
        return None if self.tier is None else self.tier.max_turns

    @property
    def session_cost_cents(self) -> int:
        return 0 if self.tier is None else self.tier.session_cost_cents

    @property
    def sessions(self) -> int:
        return len(self.selected) * len(self.arms) * self.repetitions

    @property
    def projected_cents(self) -> int:
        return self.sessions * self.session_cost_cents

    @property
    def over_ceiling(self) -> bool:
        """Whether the price is above what the tier may spend: equal to it is not."""
        return self.tier is not None and self.projected_cents > self.tier.budget_cents

    def probe(self, identifier: str) -> Probe:
        """A probe of a plan that starts. Refuses (11) where it does not, or selects no such."""
        if self.refusal is not None:
            raise Refusal(
                ExitCode.PLAN_REFUSES, f"the {self.tier_name} plan refuses this run: {self.refusal}"
            )
        for probe in self.selected:
            if probe.id == identifier:
                return probe
        raise Refusal(
            ExitCode.PLAN_REFUSES,
            f"the {self.tier_name} plan does not select {identifier}; "
            f"it selects {', '.join(probe.id for probe in self.selected) or 'none'}",
        )


def compose_plan(
    corpus: Path,
    *,
    tier: str,
    arm: str | None = None,
    category: str | None = None,
    exclude: Sequence[str] = (),
    repetitions: int | None = None,
    seed: int = 0,
    lock: str | None = None,
    census: Census | None = None,
) -> Plan:
    """The plan of a corpus. Refuses (2) an impossible argument, (5) what cannot be composed.

    ``arm`` narrows the plan to one arm of the tier, ``category`` and ``exclude`` the
    selection. ``lock`` is a digest ``sha256:…``, a file, or None for the corpus' own. ``census``
    is the corpus' where it was taken already.
    """
    if tier not in TIERS:
        raise Refusal(ExitCode.USAGE, f"--tier {tier}: the tiers are {', '.join(TIERS)}")
    if category is not None and category not in CATEGORIES:
        raise Refusal(
            ExitCode.USAGE, f"--category {category}: categories are {', '.join(CATEGORIES)}"
        )
    if repetitions is not None and repetitions < 1:
        raise Refusal(ExitCode.USAGE, f"--repetitions {repetitions}: it is at least 1")
    if seed < 0:
        raise Refusal(ExitCode.USAGE, f"--seed {seed}: it is a whole number, 0 or more")
    if not corpus.is_dir():
        raise Refusal(ExitCode.PLAN, f"{corpus}: is no directory; --corpus names the tree")
    declaration = load_declaration(corpus, ExitCode.PLAN)
    return plan_over(
        take_census(corpus, declaration) if census is None else census,
        declaration,
        tier=tier,
        arm=arm,
        category=category,
        exclude=exclude,
        repetitions=repetitions,
        seed=seed,
        lock=lock_digest(corpus, lock),
    )


def plan_over(
    census: Census,
    declaration: Declaration,
    *,
    tier: str,
    arm: str | None,
    category: str | None,
    exclude: Sequence[str],
    repetitions: int | None,
    seed: int,
    lock: str,
) -> Plan:
    """The plan over a census; pure."""
    documents = _by_name(census.documents)
    _excluded_exist(census, exclude)
    declared = declaration.tiers.get(tier)
    arms = () if declared is None else _arms(declared, arm)
    counted = repetitions or (declared.repetitions if declared else 0)
    selected, refusal = _select(census, category, exclude)
    if refusal is None:
        refusal = _documents_fault(selected, documents, declaration, declared)
    if refusal is not None:
        selected = ()
    examined = {probe.id: _resolve(probe, documents) for probe in selected}
    probes = (probe for probe in census.probes if isinstance(probe, Probe))
    read = _read_set(selected, probes, examined, documents)
    plan = Plan(
        tier_name=tier,
        tier=declared,
        identity_members=IdentityMembers(
            lock=lock,
            tree=rows_digest((item.path, item.digest) for item in census.documents),
            selection=selection_digest(probe.id for probe in selected),
            read_set=rows_digest((item.path, item.digest) for item in read),
            seed=seed,
            harness=recorder.__version__,
        ),
        selected=selected,
        examined=examined,
        read_set=read,
        classified=len(census.documents),
        arms=arms,
        repetitions=counted,
        refusal=refusal,
    )
    if refusal is not None:
        return plan
    return replace(plan, refusal=_tier_fault(plan, declaration))


def selection_digest(identifiers: Iterable[str]) -> str:
    """The identifiers sorted bytewise and joined by line feeds, without one at the end."""
    ordered = sorted(identifier.encode() for identifier in identifiers)
    return "sha256:" + hashlib.sha256(b"\n".join(ordered)).hexdigest()


def rows_digest(rows: Iterable[tuple[str, str]]) -> str:
    """``path TAB digest LF`` a row."""
    hashed = hashlib.sha256()
    for path, digest in rows:
        hashed.update(f"{path}\t{digest}\n".encode())
    return "sha256:" + hashed.hexdigest()


def dollars(cents: int) -> str:
    """Whole cents as a person reads them: ``$20.00``."""
    return f"${cents // 100}.{cents % 100:02d}"


def _by_name(documents: Sequence[Document]) -> dict[str, Document]:
    """Each document under its path, and under its identifier where it carries one."""
    found = {document.path: document for document in documents}
    for document in documents:
        if document.identifier is None:
            continue
        other = found.setdefault(document.identifier, document)
        if other is not document:
            raise Refusal(
                ExitCode.PLAN,
                f"{document.path}: carries the id {document.identifier} of {other.path}; "
                "an identifier names one document",
            )
    return found


def _excluded_exist(census: Census, exclude: Sequence[str]) -> None:
    known = {probe.id for probe in census.probes if isinstance(probe, Probe)}
    for identifier in exclude:
        if identifier not in known:
            raise Refusal(ExitCode.PLAN, f"--exclude {identifier}: no probe of this corpus")


def _arms(tier: Tier, arm: str | None) -> tuple[str, ...]:
    if arm is None:
        return tier.arms
    if arm not in tier.arms:
        raise Refusal(
            ExitCode.PLAN,
            f"--arm {arm}: the {tier.name} tier does not run it, it runs {', '.join(tier.arms)}",
        )
    return (arm,)


def _select(
    census: Census, category: str | None, exclude: Sequence[str]
) -> tuple[tuple[Probe, ...], str | None]:
    """The selected probes sorted by identifier, or the fault of the first bad one by path."""
    selected: list[Probe] = []
    for probe in census.probes:
        if isinstance(probe, ProbeFault):
            return (), f"{probe.path} {probe.reason}"
        if probe.id not in exclude and category in (None, probe.category):
            selected.append(probe)
    if not selected:
        return (), "the selection holds no probe"
    return tuple(sorted(selected, key=lambda probe: probe.id.encode())), None


def _resolve(probe: Probe, documents: dict[str, Document]) -> tuple[Examined, ...]:
    found = []
    for target in probe.examines:
        document = documents.get(target)
        if document is None:
            found.append(Examined(target, target))
        else:
            found.append(Examined(document.identifier or document.path, document.path))
    return tuple(sorted(found, key=lambda item: item.path.encode()))


def _documents_fault(
    selected: Sequence[Probe],
    documents: dict[str, Document],
    declaration: Declaration,
    tier: Tier | None,
) -> str | None:
    """The first probe whose documents no arm, or not every arm of the tier, can show."""
    for probe in sorted(selected, key=lambda probe: probe.path.encode()):
        for examined in _resolve(probe, documents):
            if examined.path not in documents and not _is_anchor(examined.path):
                return (
                    f"{probe.id} examines {examined.identifier}, "
                    "which no document of this corpus carries"
                )
            if probe.expectation not in NAMES_DOCUMENTS:
                continue
            if _under(examined.path, declaration.instrument):
                return (
                    f"{probe.id} examines {examined.path}, which is part of the instrument "
                    "that every arm removes"
                )
            for arm in tier.arms if tier else ():
                if arm not in ADDING_ARMS and tier and _under(examined.path, tier.delta(arm)):
                    return (
                        f"{probe.id} examines {examined.path}, which the `{arm}` arm of the "
                        f"{tier.name} tier removes, so that arm cannot satisfy it"
                    )
    return None


def _is_anchor(target: str) -> bool:
    """Whether a target is written as a path, so that it may lie outside of the documents."""
    return "/" in target or "." in target


def _under(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def _read_set(
    selected: Sequence[Probe],
    probes: Iterable[Probe],
    examined: dict[str, tuple[Examined, ...]],
    documents: dict[str, Document],
) -> tuple[ReadDocument, ...]:
    found = {
        item.path: ReadDocument(item.path, "document", documents[item.path].digest)
        for probe in selected
        for item in examined[probe.id]
        if item.path in documents
    }
    chosen = {probe.path for probe in selected}
    for probe in probes:
        if probe.path in found or probe.path in chosen:
            found[probe.path] = ReadDocument(probe.path, "probe", probe.digest)
    return tuple(sorted(found.values(), key=lambda item: item.path.encode()))


def _tier_fault(plan: Plan, declaration: Declaration) -> str | None:
    tier = plan.tier
    if tier is None:
        return (
            f"the declaration carries no `{plan.tier_name}` tier; "
            f"it carries {', '.join(declaration.tiers)}"
        )
    if plan.repetitions > tier.repetitions:
        return (
            f"{plan.repetitions} repetitions are more than the {tier.repetitions} "
            f"that the {tier.name} tier declares"
        )
    if plan.over_ceiling:
        return (
            f"{plan.sessions} sessions project {dollars(plan.projected_cents)} against a "
            f"declared ceiling of {dollars(tier.budget_cents)}, so the run does not start"
        )
    if "absent" in plan.arms and not tier.ablation:
        return f"the {tier.name} tier runs the `absent` arm and declares no ablation"
    return None
