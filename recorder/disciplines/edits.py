"""What a file would hold after an edit of the harness's own tools, computed and never guessed.

A file's text is None where it is not there. An edit whose result is not certain gives no
evidence (None), never the text before it in disguise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

EDIT_TOOLS = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})


@dataclass(frozen=True, slots=True)
class FileChange:
    """A change of one file. ``pre`` is None for a creation, ``post`` for a deletion."""

    path: str
    pre: str | None
    post: str | None

    @property
    def kind(self) -> str:
        return "create" if self.pre is None else "delete" if self.post is None else "modify"


def edited_path(tool: str, arguments: Mapping[str, Any]) -> str | None:
    """The file that a call of one of ``EDIT_TOOLS`` names, as it names it."""
    named = arguments.get("notebook_path" if tool == "NotebookEdit" else "file_path")
    return named if isinstance(named, str) and named else None


def edited_text(tool: str, arguments: Mapping[str, Any], pre: str | None) -> str | None:
    """The file's text after a call, or None where nothing proves it."""
    match tool:
        case "Write":
            content = arguments.get("content")
            return content if isinstance(content, str) else None
        case "Edit":
            return None if pre is None else _edited(pre, arguments)
        case "MultiEdit":
            return _all_edited(pre, arguments.get("edits"))
        case "NotebookEdit":
            return None if pre is None else _notebook(pre, arguments)
        case _:
            return None


def _edited(text: str, edit: Mapping[str, Any]) -> str | None:
    old, new = edit.get("old_string"), edit.get("new_string")
    every = edit.get("replace_all", False)
    if not isinstance(old, str) or not isinstance(new, str) or not isinstance(every, bool):
        return None
    if not old or old == new:
        return None
    if every:
        return text.replace(old, new) if old in text else None
    if text.find(old) < 0 or text.find(old, text.find(old) + 1) >= 0:
        return None
    return text.replace(old, new, 1)


def _all_edited(pre: str | None, edits: Any) -> str | None:
    if not isinstance(edits, Sequence) or isinstance(edits, str) or not edits:
        return None
    text = pre
    for edit in edits:
        if not isinstance(edit, Mapping):
            return None
        if text is None:
            # Only the first edit of a file that is not there can create it.
            created = edit.get("new_string")
            if edit.get("old_string") != "" or not isinstance(created, str):
                return None
            text = created
            continue
        text = _edited(text, edit)
        if text is None:
            return None
    return text


def _notebook(text: str, arguments: Mapping[str, Any]) -> str | None:
    """The notebook after the edit of one cell, in the layout that the harness writes.

    A notebook is JSON with an indent of one; any other layout is not proven to come out so.
    """
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        return None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list) or json.dumps(notebook, indent=1, ensure_ascii=False) != text:
        return None
    mode = arguments.get("edit_mode", "replace")
    source, kind = arguments.get("new_source"), arguments.get("cell_type")
    at = _cell(cells, arguments.get("cell_id"))
    if mode == "delete":
        if at is None:
            return None
        del cells[at]
    elif mode == "replace":
        if at is None or not isinstance(source, str) or not isinstance(cells[at], dict):
            return None
        cell = cells[at]
        if kind is not None and kind != cell.get("cell_type"):
            return None
        cell["source"] = source
        if cell.get("cell_type") == "code":
            cell["execution_count"] = None
            cell["outputs"] = []
    else:
        # An inserted cell gets an identifier that the harness draws.
        return None
    return json.dumps(notebook, indent=1, ensure_ascii=False)


def _cell(cells: list[Any], identifier: Any) -> int | None:
    if not isinstance(identifier, str):
        return None
    found = [
        n for n, cell in enumerate(cells) if isinstance(cell, dict) and cell.get("id") == identifier
    ]
    return found[0] if len(found) == 1 else None
