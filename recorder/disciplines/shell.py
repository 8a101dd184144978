"""The writes of a shell command that can be computed, and those that can be seen and not computed.

Reads bash's grammar as far as it needs to: words, quotes, redirections, here-documents, the
operators between commands. What it is not sure of is never computed. No command is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Mode = Literal["truncate", "append"]

# They read their text as commands, so what they write is not to be seen.
NESTED_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh", "eval", "source", "."})
DIRECTORY_CHANGES = frozenset({"cd", "pushd", "popd"})
# A command after one of these may run, run often, or not at all.
RESERVED_WORDS = frozenset(
    {"if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done"}
    | {"case", "esac", "in", "select", "function", "time", "coproc"}
)

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_REDIRECTION = re.compile(r"(&>>|&>|[0-9]*(?:<<<|<<-|<<|<>|<&|>>|>\||>&|<|>))")
_OPERATOR = re.compile(r"&&|\|\||;;|\|&|[;|&\n()]")


@dataclass(frozen=True, slots=True)
class Write:
    """A write whose result is known: ``content`` replaces the file, or is put at its end."""

    path: str
    content: str
    mode: Mode


@dataclass(frozen=True, slots=True)
class Unknown:
    """A write whose result is not known; ``path`` is None where not even the file is."""

    path: str | None


@dataclass(frozen=True, slots=True)
class ShellEvidence:
    """``moves``: the command may leave the shell in another directory."""

    writes: tuple[Write, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    moves: bool = False


@dataclass(slots=True)
class _Word:
    """``text`` is what the shell makes of it; with ``opaque`` that is not known. ``runs``: to
    find out, the shell may run a command."""

    text: str = ""
    opaque: bool = False
    quoted: bool = False
    runs: bool = False


@dataclass(slots=True)
class _Redirection:
    operator: str
    word: _Word
    body: str | None = None


@dataclass(slots=True)
class _Command:
    words: list[_Word] = field(default_factory=list)
    redirections: list[_Redirection] = field(default_factory=list)
    group: bool = False
    conditional: bool = False
    separator: str = ""

    @property
    def empty(self) -> bool:
        return not self.words and not self.redirections


class _UnreadableError(Exception):
    pass


def shell_evidence(command: str) -> ShellEvidence:
    """What one command line is seen to write, in its order."""
    try:
        commands = list(_Reader(command).commands())
    except _UnreadableError:
        return ShellEvidence(unknown=(Unknown(None),), moves=True)
    moves = any(_name(each) in DIRECTORY_CHANGES for each in commands)
    conditional = any(each.conditional for each in commands)
    writes: list[Write] = []
    unknown: list[Unknown] = []
    for each in commands:
        _collect(each, moves, conditional, writes, unknown)
    return ShellEvidence(tuple(writes), tuple(unknown), moves)


READ_ONLY = frozenset({"cat", "head", "tail", "grep", "rg", "ls", "wc", "diff", "stat", "file"})
PRINTING = frozenset({"echo", "printf"})
READ_ONLY_GIT = frozenset({"status", "grep"})


def only_reads(command: str) -> bool:
    """Whether every command of a line is one that is known to read, and none writes a file."""
    try:
        commands = list(_Reader(command).commands())
    except _UnreadableError:
        return False
    return all(_reads(each) for each in commands)


def _reads(command: _Command) -> bool:
    if any(_writes(each) and each.word.text != "/dev/null" for each in command.redirections):
        return False
    words = [*command.words, *(each.word for each in command.redirections)]
    if any(word.opaque and word.runs for word in words):
        return False
    name = _name(command)
    if name == "git":
        arguments = _arguments(command)
        return bool(arguments) and arguments[0].text in READ_ONLY_GIT
    return not command.words or name in READ_ONLY or name in PRINTING


def _name(command: _Command) -> str:
    """The command's own name, past its assignments; empty where there is none or it is opaque."""
    for word in command.words:
        if not word.quoted and _ASSIGNMENT.match(word.text):
            continue
        return "" if word.opaque else word.text.rpartition("/")[2]
    return ""


def _arguments(command: _Command) -> list[_Word]:
    words = list(command.words)
    while words and not words[0].quoted and _ASSIGNMENT.match(words[0].text):
        words.pop(0)
    return words[1:]


def _collect(
    command: _Command,
    moves: bool,
    conditional: bool,
    writes: list[Write],
    unknown: list[Unknown],
) -> None:
    name = _name(command)
    if name in NESTED_SHELLS:
        unknown.append(Unknown(None))
    targets = [each for each in command.redirections if _writes(each)]
    paths = [_path(each.word, moves) for each in targets]
    content = _content(command, name)
    if len(targets) == 1 and content is not None and paths[0] is not None and not conditional:
        operator = targets[0].operator
        if operator in (">", ">>", ">|", "1>", "1>>", "1>|"):
            mode: Mode = "append" if operator.endswith(">>") else "truncate"
            writes.append(Write(paths[0], content, mode))
            return
    unknown += [Unknown(path) for path in paths]
    if name == "tee":
        unknown += [
            Unknown(_path(word, moves))
            for word in _arguments(command)
            if word.opaque or word.quoted or not word.text.startswith("-")
        ]
    elif name == "sed":
        unknown += [Unknown(_path(word, moves)) for word in _edited_by_sed(_arguments(command))]


def _writes(redirection: _Redirection) -> bool:
    operator = redirection.operator.lstrip("0123456789")
    if operator == ">&":
        # `2>&1` and `>&-` move a descriptor; `>& file` writes.
        word = redirection.word
        return word.opaque or not re.fullmatch(r"[0-9]+-?|-", word.text)
    return operator in (">", ">>", ">|", "&>", "&>>", "<>")


def _path(word: _Word, moves: bool) -> str | None:
    if word.opaque or not word.text:
        return None
    return None if moves and not word.text.startswith("/") else word.text


def _content(command: _Command, name: str) -> str | None:
    """What the command prints, where that is certain."""
    if command.group:
        return None
    inputs = [each for each in command.redirections if not _writes(each) and "<" in each.operator]
    if not command.words:
        return "" if not inputs else None
    arguments = _arguments(command)
    if name == "echo" and not inputs:
        if any(word.opaque for word in arguments):
            return None
        if arguments and arguments[0].text.startswith("-"):
            return None
        return " ".join(word.text for word in arguments) + "\n"
    if name == "cat" and not arguments and len(inputs) == 1:
        return inputs[0].body
    return None


def _edited_by_sed(arguments: list[_Word]) -> list[_Word]:
    """The files of `sed -i`: every argument that is no option, after the script."""
    in_place = False
    script = False
    files: list[_Word] = []
    words = iter(arguments)
    for word in words:
        text = word.text
        if word.opaque or not text.startswith("-") or text == "-":
            files.append(word)
        elif text.startswith("--"):
            in_place = in_place or text.startswith("--in-place")
            script = script or text.startswith(("--expression", "--file"))
            if text in ("--expression", "--file"):
                next(words, None)
        else:
            cluster = re.match(r"-[nErsuzb]*([ief]?)(.*)", text, re.DOTALL)
            letter, rest = (cluster[1], cluster[2]) if cluster else ("", "")
            in_place = in_place or letter == "i"
            if letter and letter in "ef":
                script = True
                if not rest:
                    next(words, None)
    if not in_place:
        return []
    return files if script else files[1:]


class _Reader:
    """One pass over a command line."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.at = 0
        self.pending: list[tuple[_Redirection, bool]] = []

    def commands(self) -> Iterator[_Command]:
        depth = 0
        command = _Command()
        while True:
            self._blanks()
            if self.at >= len(self.source):
                break
            if self._comment():
                continue
            found = _REDIRECTION.match(self.source, self.at)
            if found is not None and not self._substitution(found):
                command.redirections.append(self._redirection(found))
                continue
            if operator := _OPERATOR.match(self.source, self.at):
                self.at = operator.end()
                text = operator[0]
                depth += (text == "(") - (text == ")")
                if depth < 0:
                    raise _UnreadableError
                if not command.empty:
                    yield command
                command = _Command(group=text == ")")
                if text == "\n":
                    self._bodies()
                continue
            command.words.append(self._word())
            self._reserve(command)
        self._bodies()
        if depth:
            raise _UnreadableError
        if not command.empty:
            yield command

    def _reserve(self, command: _Command) -> None:
        """A reserved word at a command's start is not its name."""
        word = command.words[-1]
        if len(command.words) != 1 or word.quoted or word.opaque:
            return
        if word.text in RESERVED_WORDS:
            command.conditional = True
            command.words.clear()
        elif word.text in ("{", "!"):
            command.words.clear()
        elif word.text == "}":
            command.words.clear()
            command.group = True

    def _blanks(self) -> None:
        while self.at < len(self.source):
            if self.source[self.at] in " \t\r":
                self.at += 1
            elif self.source.startswith("\\\n", self.at):
                self.at += 2
            else:
                return

    def _comment(self) -> bool:
        if self.source[self.at] != "#":
            return False
        end = self.source.find("\n", self.at)
        self.at = len(self.source) if end < 0 else end
        return True

    def _substitution(self, found: re.Match[str]) -> bool:
        """Whether this is a process substitution, ``>(…)``, and so part of a word."""
        return found[0] in ("<", ">") and self.source.startswith("(", found.end())

    def _redirection(self, found: re.Match[str]) -> _Redirection:
        self.at = found.end()
        operator = found[0]
        self._blanks()
        if self.at >= len(self.source) or self.source[self.at] in "\n;|)":
            raise _UnreadableError
        word = self._word()
        redirection = _Redirection(operator, word)
        if operator.endswith("<<<"):
            redirection.body = None if word.opaque else word.text + "\n"
        elif operator.endswith(("<<", "<<-")):
            self.pending.append((redirection, operator.endswith("-")))
        return redirection

    def _bodies(self) -> None:
        """Read the here-documents whose operators stood on the line that just ended."""
        for redirection, strip in self.pending:
            lines: list[str] = []
            ended = False
            while self.at < len(self.source) and not ended:
                end = self.source.find("\n", self.at)
                line = self.source[self.at : len(self.source) if end < 0 else end]
                self.at = len(self.source) if end < 0 else end + 1
                if strip:
                    line = line.lstrip("\t")
                ended = not redirection.word.opaque and line == redirection.word.text
                if not ended:
                    lines.append(line)
            body = "".join(line + "\n" for line in lines)
            literal = redirection.word.quoted or not re.search(r"[$`\\]", body)
            redirection.body = body if ended and literal else None
        self.pending.clear()

    def _word(self) -> _Word:
        word = _Word()
        start = self.at
        pieces: list[str] = []
        while self.at < len(self.source):
            character = self.source[self.at]
            if character in "<>" and self.source.startswith("(", self.at + 1):
                word.opaque = word.runs = True
                self.at += 1
                self._balanced("(", ")")
            elif character in " \t\r\n;|&()<>":
                break
            elif character == "'":
                end = self.source.find("'", self.at + 1)
                if end < 0:
                    raise _UnreadableError
                pieces.append(self.source[self.at + 1 : end])
                word.quoted = True
                self.at = end + 1
            elif character == '"':
                pieces.append(self._double(word))
            elif character == "\\":
                following = self.source[self.at + 1 : self.at + 2]
                if following != "\n":
                    pieces.append(following)
                    word.quoted = True
                self.at += 2
            elif character in "$`":
                word.opaque = True
                word.runs = word.runs or self.source.startswith(("`", "$(", "${"), self.at)
                self._expansion()
            else:
                if character in "*?[" or (character == "~" and self.at == start):
                    word.opaque = True
                if character == "{" and self.source[self.at + 1 : self.at + 2] not in (
                    "",
                    " ",
                    "\t",
                    "\n",
                ):
                    word.opaque = True
                pieces.append(character)
                self.at += 1
        if self.at == start:
            raise _UnreadableError
        word.text = "".join(pieces)
        return word

    def _double(self, word: _Word) -> str:
        word.quoted = True
        self.at += 1
        pieces: list[str] = []
        while True:
            if self.at >= len(self.source):
                raise _UnreadableError
            character = self.source[self.at]
            if character == '"':
                self.at += 1
                return "".join(pieces)
            if character == "\\":
                following = self.source[self.at + 1 : self.at + 2]
                if following != "\n":
                    pieces.append(following if following in '$`"\\' else "\\" + following)
                self.at += 2
            elif character in "$`":
                word.opaque = True
                word.runs = word.runs or self.source.startswith(("`", "$(", "${"), self.at)
                self._expansion()
            else:
                pieces.append(character)
                self.at += 1

    def _expansion(self) -> None:
        """Step over ``$name``, ``${…}``, ``$(…)`` or a back-quoted command."""
        if self.source[self.at] == "`":
            end = self.source.find("`", self.at + 1)
            if end < 0:
                raise _UnreadableError
            self.at = end + 1
            return
        self.at += 1
        for opening, closing in (("(", ")"), ("{", "}")):
            if self.source.startswith(opening, self.at):
                self._balanced(opening, closing)
                return
        if self.source.startswith("'", self.at):
            # $'…': an ANSI-C string; its end is found as the shell finds it.
            ended = re.compile(r"'(?:[^'\\]|\\.)*'", re.DOTALL).match(self.source, self.at)
            if ended is None:
                raise _UnreadableError
            self.at = ended.end()

    def _balanced(self, opening: str, closing: str) -> None:
        depth = 0
        quote = ""
        while self.at < len(self.source):
            character = self.source[self.at]
            if quote:
                quote = "" if character == quote else quote
            elif character in "'\"":
                quote = character
            elif character == opening:
                depth += 1
            elif character == closing:
                depth -= 1
                if depth == 0:
                    self.at += 1
                    return
            self.at += 1
        raise _UnreadableError
