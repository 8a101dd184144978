"""Strings that would give an answer away, looked for in text that every session starts with.

A probe's name can be absent from a workspace and its answer still be loaded into every session.
Each probe declares such strings; one that is found and that nobody keeps refuses the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from recorder.plan.declaration import Declaration
from recorder.refusal import ExitCode, Refusal
from recorder.workspace.loaded import Loaded, loaded_configuration, loaded_text
from recorder.workspace.servers import MCP_FILE, servers_of

ToolTexts = Mapping[str, Sequence[str]]
"""Each tool of the servers of a workspace with every text that a harness loads about it."""

ToolLister = Callable[[Path], ToolTexts]
"""Asks the servers that a workspace declares for their tools, in a container."""


@dataclass(frozen=True, slots=True)
class Leak:
    """One string of one probe found in one text; ``kept`` where the declaration keeps it."""

    probe: str
    name: str
    string: str
    kept: bool

    def line(self) -> str:
        return f"{'kept' if self.kept else 'leak'} {self.probe} {self.name} {self.string}"


@dataclass(frozen=True, slots=True)
class Leaks:
    """What was found for some probes; ``undeclared`` are those that declare no string."""

    found: tuple[Leak, ...]
    undeclared: tuple[str, ...]

    @property
    def unkept(self) -> tuple[Leak, ...]:
        return tuple(leak for leak in self.found if not leak.kept)

    def lines(self) -> tuple[str, ...]:
        """A line for each string that was found, then one for each probe without a string."""
        return (
            *(leak.line() for leak in self.found),
            *(f"undeclared {probe}" for probe in self.undeclared),
        )

    def reasons(self, what: str) -> tuple[str, ...]:
        """Why ``what`` is refused: a line for each string that nobody keeps."""
        return tuple(
            f"{what}: {leak.name} holds {leak.string!r}, which gives {leak.probe} away; "
            "take it out, or declare the probe under `leaks_kept`"
            for leak in self.unkept
        )

    def require_none(self, what: str) -> None:
        """Refuse (9) a string that nobody keeps."""
        if self.unkept:
            raise Refusal(ExitCode.NAMED, *self.reasons(what))


def find_leaks(texts: Iterable[Loaded], declaration: Declaration, probes: Sequence[str]) -> Leaks:
    """The declared strings of some probes in some texts; pure.

    White space counts as one space, so a string that a line end breaks is found too.
    """
    wanted = [
        (probe, string, _spaced(string))
        for probe in dict.fromkeys(probes)
        for string in declaration.leaks.get(probe, ())
    ]
    found = []
    for loaded in texts:
        text = _spaced(loaded.text)
        found += [
            Leak(probe, loaded.name, string, probe in declaration.leaks_kept)
            for probe, string, spaced in wanted
            if spaced in text
        ]
    order = {probe: number for number, probe in enumerate(dict.fromkeys(probes))}
    found.sort(key=lambda leak: order[leak.probe])
    undeclared = tuple(probe for probe in order if not declaration.leaks.get(probe))
    return Leaks(tuple(found), undeclared)


def _spaced(text: str) -> str:
    return " ".join(text.split())


def file_leaks(
    workspace: Path,
    declaration: Declaration,
    probes: Sequence[str],
    *,
    configuration: Path | None = None,
) -> Leaks:
    """What leaks from the files of a workspace, and of a configuration directory."""
    texts = [*loaded_text(workspace)]
    if configuration is not None:
        texts += loaded_configuration(configuration)
    return find_leaks(texts, declaration, probes)


def declares_tools(workspace: Path) -> bool:
    """Whether a workspace declares MCP servers, whose tools every session is told. Refusal 2 for
    a declaration that cannot be read."""
    return bool(servers_of(workspace / MCP_FILE))


def tool_texts(tools: ToolTexts) -> tuple[Loaded, ...]:
    """The texts of tools, each under ``mcp:<tool>``, its server's own name for it.

    A key may be the harness's name for it, ``mcp__<server>__<tool>``.
    """
    return tuple(
        Loaded(f"mcp:{_own_name(name)}", "\n".join((name, *texts))) for name, texts in tools.items()
    )


def _own_name(name: str) -> str:
    return name.split("__", 2)[-1] if name.startswith("mcp__") else name


def tool_leaks(
    workspace: Path, declaration: Declaration, probes: Sequence[str], lister: ToolLister | None
) -> Leaks:
    """What leaks from what the MCP servers of a workspace say of their tools.

    No server is asked where none is declared, or no probe declares a string. Refuses (3) where
    one has to be asked and nothing can, (8) servers that list no tool at all.
    """
    strings = any(declaration.leaks.get(probe) for probe in probes)
    if not strings or not declares_tools(workspace):
        return find_leaks((), declaration, probes)
    return find_leaks(tool_texts(list_tools(workspace, lister)), declaration, probes)


def list_tools(workspace: Path, lister: ToolLister | None) -> ToolTexts:
    """The tools of the servers of a workspace. Refuses (3) without a lister, (8) no tool."""
    if lister is None:
        raise Refusal(
            ExitCode.MISSING,
            f"{workspace / MCP_FILE}: declares a server, and no engine is there to list its "
            "tools; start one with `recorder engine start`",
        )
    tools = lister(workspace)
    if not tools:
        raise Refusal(
            ExitCode.INSTRUMENT,
            f"{workspace / MCP_FILE}: its servers list no tool, so they add nothing to a session; "
            "put the server right",
        )
    return tools
