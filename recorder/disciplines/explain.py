"""What each entry of a file does on each surface, as a table. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from recorder.disciplines.declaration import Declaration, Disciplines, Entry


@dataclass(frozen=True, slots=True)
class Explained:
    """One entry. The last three columns say what it does on that surface."""

    id: str
    enforce: str
    mechanism: str
    session: str
    git: str
    hook: str


def explanation(disciplines: Disciplines) -> tuple[Explained, ...]:
    """Entries in the file's order, then drafts."""
    drafts = (
        Explained(draft.id, "", "", "unpromoted", "unpromoted", "unpromoted")
        for draft in disciplines.drafts
    )
    return (*map(_explained, disciplines.entries), *drafts)


def _explained(entry: Entry) -> Explained:
    enforce = "" if entry.enforce is None else f"enforce: {entry.enforce}"
    declaration = entry.declaration
    if declaration is None:
        return Explained(entry.id, enforce, "?", *(["skipped (config-fault)"] * 3))
    said = _judged(entry, declaration)
    session = said if not declaration.reads_changes else f"{said}, once a session"
    hook = "skipped (no-observation)" if declaration.reads_changes else said
    return Explained(
        entry.id, enforce, declaration.mechanism.name, session, _git(declaration, said), hook
    )


def _judged(entry: Entry, declaration: Declaration) -> str:
    verb = "blocks" if entry.enforce == "block" else "advises"
    return verb if declaration.witness is None else f"{verb}, its witness opens"


def _git(declaration: Declaration, said: str) -> str:
    if declaration.scope is not None and declaration.scope.source == "command":
        return "never admitted (no command)"
    source = declaration.reads_kind("transcript", "sidecar")
    if source is not None:
        passes = declaration.policy(source) == "pass"
        return f"skipped ({'supply-pass' if passes else 'no-observation'})"
    for name in sorted(declaration.reads & {"actor", "command"}):
        match declaration.policy(name):
            case "pass":
                return "skipped (supply-pass)"
            case "error":
                return f"blocks: {name} is absent"
            case _:
                pass
    return said
