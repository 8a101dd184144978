"""How the harness changes the input of a call before it prints it, runs it and tells it back. Pure.

The sidecar logs, of each member that a provider gave, the digests of what it may become
(``proxy.witness``), so a change is recognised without anything that was said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from proxy.witness import block_digest, digest
from recorder.evidence.corroboration_provider import GivenBlock

UNPARSED = "__unparsedToolInput"

# Of Claude Code 2.1.332: (tool, member), and the form of the provider's value that it becomes.
# `parsed` and `escapes` are done to every tool's. Measured with a scripted provider, and read in
# the harness itself.
FORMS: Mapping[tuple[str, str], str] = {
    ("Bash", "command"): "directory",
    ("Edit", "new_string"): "trailing",
    ("MultiEdit", "edits"): "trailing",
    ("Write", "content"): "trailing",
}
FORMS_OF_ALL = ("parsed", "escapes")
ADDED: Mapping[tuple[str, str], Any] = {
    ("Edit", "replace_all"): False,
    ("SendMessage", "type"): "message",
}
# Members added that say again what another says, or how it was understood.
COPIED: Mapping[tuple[str, str], str] = {
    ("SendMessage", "content"): "message",
    ("SendMessage", "recipient"): "to",
}
UNDERSTOOD = frozenset({("SendMessage", "recipient_kind")})
_WORD = re.compile(r"[a-z_]{1,20}")


def normalised(given: GivenBlock, shown: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The names of the members that the harness changed as it is known to; None for any other."""
    tool, value = str(shown.get("name")), shown.get("input")
    if not isinstance(value, dict):
        return None
    if set(value) == {UNPARSED} and isinstance(value[UNPARSED], dict):
        raw = value[UNPARSED].get("raw")
        as_given = block_digest({**shown, "input": raw})
        size = value[UNPARSED].get("len") == (len(raw) if isinstance(raw, str) else None)
        return (UNPARSED,) if as_given == given.digest and size else None
    members = given.members
    if members is None:
        # What an older harness (2.0.77) makes of input that it cannot parse.
        return None if value else (UNPARSED,)
    changed: list[str] = []
    for name, item in value.items():
        forms = members.get(name) or members.get(digest(name))
        found = digest(item)
        if forms is None:
            if not _added(tool, name, item, value):
                return None
            changed.append(f"{tool}.{name}")
        elif found != forms["given"]:
            known = (FORMS.get((tool, name), ""), *FORMS_OF_ALL)
            if all(forms.get(form) != found for form in known):
                return None
            changed.append(f"{tool}.{name}")
    names = set(value) | {digest(name) for name in value}
    if any(name not in names for name in members):
        return None
    return tuple(changed) or None


def _added(tool: str, name: str, item: Any, value: Mapping[str, Any]) -> bool:
    """Whether a member is one that the harness adds, with the value that it gives it."""
    if (tool, name) in COPIED:
        return bool(item == value.get(COPIED[tool, name]))
    if (tool, name) in UNDERSTOOD:
        return isinstance(item, str) and _WORD.fullmatch(item) is not None
    return (
        (tool, name) in ADDED
        and type(item) is type(ADDED[tool, name])
        and bool(item == ADDED[tool, name])
    )


def differing(given: GivenBlock, shown: Mapping[str, Any]) -> list[str]:
    value, members = shown.get("input"), given.members or {}
    if not isinstance(value, dict):
        return []
    named = [
        f"input.{name}"
        for name, item in value.items()
        if digest(item) not in (members.get(name) or members.get(digest(name)) or {}).values()
    ]
    return named + [f"input.{name}" for name in members if name not in value]
