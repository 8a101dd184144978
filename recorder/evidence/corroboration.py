"""The join of two witnesses: the stream that was recorded, and what the sidecar saw. Pure.

Every assistant block of the stream must be one that the provider gave, in an answer to a request
whose head is its conversation's own and whose history is the transcript so far; every result that
the stream shows must be one that the provider was told, and every result it was told must be in
the stream. What only the provider saw is explained and counted. DESIGN section 4.

A conversation is called a thread: the session's own (``MAIN``), or a subagent's, named by the call
that runs it.
"""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.egress import read
from proxy.witness import block_digest
from recorder.evidence.corroboration_input import differing, normalised
from recorder.evidence.corroboration_provider import (
    Exchange,
    GivenBlock,
    ProviderWitness,
    provider_witness,
)
from recorder.evidence.corroboration_result import Cost, Counted, cost_of, result_faults
from recorder.evidence.corroboration_stream import (
    MAIN,
    ShownBlock,
    ShownTold,
    StreamWitness,
    stream_witness,
)
from recorder.evidence.pricing import PriceTable, shipped_prices
from recorder.refusal import ExitCode, Refusal

AGENT_TOOLS = frozenset({"Agent", "Task"})
# How 2.0.77 prints, and tells back, a text of white space alone.
NO_CONTENT = "(no content)"
THOUGHT = frozenset({"thinking", "redacted_thinking"})


class Disagreement(enum.StrEnum):
    """How the witnesses disagree: each is exit 14."""

    ONLY_IN_STREAM = "only in the stream"
    FOREIGN_USED = "a foreign answer used"
    CHANGED = "not as the provider gave it"
    LEFT_OUT = "left out of the stream"
    NOT_TOLD = "not what the provider was told"
    ORDER = "out of order"
    RESULT = "the result line does not follow"
    SHAPE = "not a line of the harness"


class Alone(enum.StrEnum):
    """Why an answer is only at the provider. None of these is a disagreement."""

    RETRIED = "retried"
    CUT = "cut"
    REFUSED = "refused by the provider"
    UNANSWERED = "without an answer"
    EMPTY = "empty"
    SUBAGENT = "a subagent's, not shown"
    SIDE_CALL = "side call"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Finding:
    """One disagreement. ``line`` is of the stream, ``request`` of the egress log; None for none."""

    kind: Disagreement
    line: int | None
    request: int | None
    what: str

    def __str__(self) -> str:
        where = [f"line {self.line}"] if self.line is not None else []
        where += [f"request {self.request}"] if self.request is not None else []
        return f"{', '.join(where) or 'stream'}: {self.kind}: {self.what}"


@dataclass(frozen=True, slots=True)
class ForeignAnswer:
    """A request that no thread of this harness explains, and was it used."""

    request: int
    model: str | None
    session: str | None
    used: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Corroboration:
    """What the join found. Counts of blocks, results and texts; findings are disagreements.

    ``normalised``: how often which member of which tool was changed by the harness in a way that
    is known. ``unconfirmed``: results and texts the provider was never told, because the session
    ended first. ``unseen_texts``: texts of the user's side that the provider was told and the
    stream does not show.
    """

    blocks: int
    corroborated: int
    normalised: Mapping[str, int]
    results: int
    texts: int
    unconfirmed: int
    unseen_texts: int
    not_shown: int
    thoughts_not_told: int
    own_words: int
    exchanges: int
    used: int
    alone: Mapping[str, int]
    token_counts: int
    foreign: tuple[ForeignAnswer, ...]
    tools_changed: int
    hooks_that_changed_a_call: int
    hooks_that_changed_a_result: int
    cost: Cost
    findings: tuple[Finding, ...]

    @property
    def agrees(self) -> bool:
        return not self.findings


def corroborate(
    raw: Iterable[bytes],
    egress: Iterable[bytes],
    *,
    task: str | None = None,
    session: str | None = None,
    prices: PriceTable | None = None,
) -> Corroboration:
    """Join a session's raw lines with its egress log's lines.

    ``task`` is the text that the session was given and ``session`` its name, where they are
    known; ``prices`` is the shipped table where none is given. Raises ``Refusal`` (19) for
    a log that does not verify, or that is of another version.
    """
    reading = read(egress)
    if reading.faults:
        raise Refusal(ExitCode.CORRUPT, *(f"egress log: {fault}" for fault in reading.faults))
    try:
        provider = provider_witness(reading.lines)
    except (KeyError, TypeError, ValueError) as error:
        raise Refusal(
            ExitCode.CORRUPT,
            f"egress log: its lines are not of this recorder's version: {error!r}",
        ) from error
    joined = _Join(stream_witness(raw), provider, task)
    if session is not None and provider.session != session:
        joined.find(Disagreement.SHAPE, f"the egress log is of session {provider.session}")
    return joined.corroboration(prices or shipped_prices())


@dataclass(slots=True)
class _Thread:
    """One conversation as it grows: the answers it took up, since its history was last cut.

    ``forms``: what each digest the provider gave became in the stream.
    """

    key: str
    head: str | None = None
    history: list[Exchange] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)


@dataclass(slots=True)
class _Shown:
    """One message of the stream: its blocks in order."""

    thread: str
    blocks: list[ShownBlock]

    @property
    def line(self) -> int:
        return self.blocks[0].line


class _Join:
    def __init__(self, stream: StreamWitness, provider: ProviderWitness, task: str | None) -> None:
        self.stream = stream
        self.provider = provider
        self.task = task
        self.findings: list[Finding] = []
        self.corroborated = 0
        self.normalised: Counter[str] = Counter()
        self.alone: Counter[str] = Counter()
        self.foreign: list[ForeignAnswer] = []
        self.confirmed_results = 0
        self.confirmed_texts = 0
        self.unconfirmed = 0
        self.not_shown = 0
        self.thoughts: set[str] = set()
        self.unseen: set[str] = set()
        self.by_message: dict[str, Exchange] = {}
        for exchange in provider.exchanges:
            if exchange.message is not None:
                self.by_message.setdefault(exchange.message, exchange)
        self.messages: dict[str, _Shown] = {}
        self.calls: dict[str, ShownBlock] = {}
        self.threads: dict[str, _Thread] = {}
        self.opened: dict[str, frozenset[str]] = {}
        for text in stream.told:
            if text.thread != MAIN and not text.result:
                self.opened.setdefault(text.thread, frozenset((text.digest, text.bare)))
        # What the provider's block became in the stream, by the digest that was given. Calls
        # carry an id, so one digest becomes one other at most.
        self.became: dict[str, str] = {}
        self.boundaries_left = len(stream.boundaries)
        self.names_requests = any(block.request_id is not None for block in stream.blocks)
        self.beside: set[int] = set()

    def find(
        self, kind: Disagreement, what: str, line: int | None = None, request: int | None = None
    ) -> None:
        self.findings.append(Finding(kind, line, request, what))

    def corroboration(self, prices: PriceTable) -> Corroboration:
        self._shape()
        self._gather()
        for shown in self.messages.values():
            self._message(shown)
        self._walk()
        self._told()
        counted = self._counted()
        for line, what in result_faults(self.stream, counted):
            self.find(Disagreement.RESULT, what, line)
        tools = Counter(
            (thread.key, exchange.tools_digest)
            for thread in self.threads.values()
            for exchange in thread.exchanges
        )
        return Corroboration(
            blocks=len(self.stream.blocks),
            corroborated=self.corroborated,
            normalised=dict(sorted(self.normalised.items())),
            results=self.confirmed_results,
            texts=self.confirmed_texts,
            unconfirmed=self.unconfirmed,
            unseen_texts=len(self.unseen),
            not_shown=self.not_shown,
            thoughts_not_told=len(self.thoughts),
            own_words=len(self.stream.own_words),
            exchanges=len(self.provider.exchanges),
            used=sum(exchange.message in self.messages for exchange in self.provider.exchanges),
            alone=dict(sorted(self.alone.items())),
            token_counts=self.provider.token_counts,
            foreign=tuple(self.foreign),
            tools_changed=len(tools) - len({thread for thread, _ in tools}),
            hooks_that_changed_a_call=self.stream.hooks_that_changed_a_call,
            hooks_that_changed_a_result=self.stream.hooks_that_changed_a_result,
            cost=cost_of(self.stream, counted, prices),
            findings=tuple(
                sorted(self.findings, key=lambda each: (each.line or 0, each.request or 0))
            ),
        )

    def _counted(self) -> Counted:
        main = self.threads.get(MAIN, _Thread(MAIN)).exchanges
        others = [
            exchange
            for key, thread in self.threads.items()
            if key != MAIN
            for exchange in thread.exchanges
        ]
        others += [each for each in self.provider.exchanges if each.number in self.beside]
        known = {exchange.number for exchange in (*main, *others)}
        return Counted(
            main=main,
            others=others,
            foreign=[each for each in self.provider.exchanges if each.number not in known],
            shown=frozenset(
                each.number for each in self.provider.exchanges if each.message in self.messages
            ),
        )

    # Lines that stand alone.

    def _shape(self) -> None:
        for line in self.stream.unreadable:
            self.find(Disagreement.SHAPE, "it is no JSON object", line)
        for line in self.stream.misshapen:
            self.find(Disagreement.SHAPE, "its message has no shape the harness gives one", line)
        for session in self.stream.sessions:
            if session != self.stream.session:
                self.find(Disagreement.SHAPE, "lines of another harness session are in it")
        for own in self.stream.own_words:
            if own.kind != "text":
                self.find(
                    Disagreement.ONLY_IN_STREAM, f"a {own.kind} that no provider gave", own.line
                )

    def _gather(self) -> None:
        threads: dict[str, str] = {}
        for block in self.stream.blocks:
            if block.kind == "tool_use" and isinstance(block.block.get("id"), str):
                self.calls.setdefault(block.block["id"], block)
            key = block.message or f"line {block.line}"
            if threads.setdefault(key, block.thread) != block.thread:
                self.find(
                    Disagreement.ORDER, "one message is shown in two conversations", block.line
                )
            self.messages.setdefault(key, _Shown(block.thread, [])).blocks.append(block)

    # Each message of the stream against the answer that gave it.

    def _message(self, shown: _Shown) -> None:
        first = shown.blocks[0]
        exchange = self.by_message.get(first.message or "")
        if exchange is None:
            for block in shown.blocks:
                what = f"a {block.kind} of message {block.message} that no answer gave"
                self.find(Disagreement.ONLY_IN_STREAM, what, block.line)
            return
        for block in shown.blocks:
            self._line(block, exchange)
        self._blocks(shown, exchange)

    def _line(self, block: ShownBlock, exchange: Exchange) -> None:
        # A line states the usage as the message began, or as it ended (2.0.77 mends it later).
        given, ended = exchange.usage_start, exchange.usage
        usage_differs = any(
            value not in (given[key], ended[key]) if key in given else not _filled_in(value)
            for key, value in block.usage.items()
        ) or any(key not in block.usage for key in given)
        # Lines of 2.0.77 name no request at all.
        named = block.request_id is not None or self.names_requests
        for wrong, what in (
            (named and block.request_id != exchange.request_id, "the request's id"),
            (block.model != exchange.model_served, "the model that served it"),
            (block.role != "assistant", "the role"),
            (block.stop_reason not in (None, exchange.stop_reason), "the reason it stopped"),
            (
                block.stop_sequence is not None and block.stop_reason != "stop_sequence",
                "the sequence it stopped at",
            ),
            (usage_differs, "the usage"),
        ):
            if wrong:
                self.find(
                    Disagreement.CHANGED,
                    f"{what} of message {exchange.message} is another one",
                    block.line,
                    exchange.number,
                )

    def _blocks(self, shown: _Shown, exchange: Exchange) -> None:
        """The blocks that are shown are the ones that were given, each once and in order."""
        at = 0
        missing: list[GivenBlock] = []
        given = exchange.blocks
        for block in shown.blocks:
            found = next(
                (i for i in range(at, len(given)) if self._same(given[i], block) is not None), None
            )
            if found is None:
                earlier = any(self._same(each, block) is not None for each in given[:at])
                self.find(
                    Disagreement.ORDER if earlier else Disagreement.CHANGED,
                    f"{_name(block)} of message {exchange.message}"
                    + (
                        " is shown again, or before its turn"
                        if earlier
                        else self._why(given, block)
                    ),
                    block.line,
                    exchange.number,
                )
                continue
            missing += given[at:found]
            self._take(given[found], block)
            at = found + 1
        missing += given[at:]
        for absent in missing:
            if not absent.blank:
                self._absent(absent, shown, exchange)

    def _take(self, given: GivenBlock, block: ShownBlock) -> None:
        changes = self._same(given, block) or ()
        for change in changes:
            self.normalised[change] += 1
        if changes:
            self.became[given.digest] = block.digest
        self.corroborated += 1

    def _same(self, given: GivenBlock, block: ShownBlock) -> tuple[str, ...] | None:
        """The members that the harness changed, none of them for an equal block; None: another."""
        if given.digest == block.digest:
            return ()
        if given.blank and block.kind == "text" and block.block.get("text") == NO_CONTENT:
            return (NO_CONTENT,)
        if given.kind != "tool_use" or block.kind != "tool_use":
            return None
        shown = block.block
        if (given.id, given.name) != (shown.get("id"), shown.get("name")):
            return None
        return normalised(given, shown)

    def _why(self, given: Sequence[GivenBlock], block: ShownBlock) -> str:
        """Which member of a call is another one, where the call itself was given."""
        for each in given:
            if block.kind == "tool_use" and each.id == block.block.get("id"):
                if each.name != block.block.get("name"):
                    return f": the provider named the tool {each.name}"
                return f": {', '.join(differing(each, block.block)) or 'its input'} differs"
        return ": the provider gave no such block"

    def _absent(self, absent: GivenBlock, shown: _Shown, exchange: Exchange) -> None:
        """A block that was given and is not shown, of a message of which others are."""
        quiet = shown.thread != MAIN and shown.thread not in self.stream.background
        if absent.broken_off or not exchange.whole:
            return
        if quiet and absent.kind != "tool_use":
            # A subagent in the foreground shows its calls and their results alone.
            self.not_shown += 1
            return
        self.find(
            Disagreement.LEFT_OUT,
            f"a {absent.kind} of message {exchange.message} is not shown",
            shown.line,
            exchange.number,
        )

    # Whose answer each is: every request in order, its head and its history.

    def _walk(self) -> None:
        main = self._main_head()
        shown_in = {
            exchange.number: self.messages[exchange.message]
            for exchange in self.provider.exchanges
            if exchange.message in self.messages
        }
        last_line: dict[str, int] = {}
        for exchange in self.provider.exchanges:
            shown = shown_in.get(exchange.number)
            thread = self._thread_of(exchange, shown, main)
            if thread is not None:
                thread.exchanges.append(exchange)
                thread.head = thread.head or exchange.head
            if shown is None:
                if thread is not None and thread.key != MAIN and exchange.whole:
                    thread.history.append(exchange)
                continue
            if thread is None:
                self._foreign(exchange, used=True)
                what = f"message {exchange.message} is used, and {self._foreign_why(exchange)}"
                self.find(Disagreement.FOREIGN_USED, what, shown.line, exchange.number)
                continue
            if shown.line < last_line.get(thread.key, 0):
                what = f"message {exchange.message} is shown before one that was asked for earlier"
                self.find(Disagreement.ORDER, what, shown.line, exchange.number)
            last_line[thread.key] = shown.line
            self._history(exchange, shown, thread)
            thread.history.append(exchange)
        for exchange in self.provider.exchanges:
            if exchange.number not in shown_in:
                self._alone(exchange)

    def _main_head(self) -> str | None:
        for block in self.stream.blocks:
            exchange = self.by_message.get(block.message or "")
            if block.thread == MAIN and exchange is not None and self._own(exchange):
                return exchange.head
        for exchange in self.provider.exchanges:
            if self._own(exchange):
                return exchange.head
        return None

    def _own(self, exchange: Exchange) -> bool:
        """Whether a request says it is of the harness session that the stream says it is.

        A stream that states none disowns no request: what it lacks is then left out of it.
        """
        return exchange.session in (None, self.stream.session) or self.stream.session is None

    def _thread_of(
        self, exchange: Exchange, shown: _Shown | None, main: str | None
    ) -> _Thread | None:
        if not self._own(exchange):
            return None
        if shown is not None:
            key = shown.thread
            if key == MAIN:
                return self._thread(MAIN) if exchange.head == main else None
            thread = self._thread(key)
            if thread.head is None and not self._opens(exchange, key):
                return None
            return thread if thread.head in (None, exchange.head) else None
        for thread in self.threads.values():
            if thread.head == exchange.head and self._matches(exchange.told, thread) is not None:
                return thread
        if exchange.head == main and not exchange.told:
            return self._thread(MAIN)
        for key in (*self.calls, *self.opened):
            if key not in self.threads and self._prompts(key) and self._opens(exchange, key):
                return self._thread(key)
        return None

    def _thread(self, key: str) -> _Thread:
        return self.threads.setdefault(key, _Thread(key))

    def _opens(self, exchange: Exchange, key: str) -> bool:
        """Whether a request opens the conversation of a call: it was told that call's prompt.

        A call of another tool may state none, and then its lines alone say whose they are.
        """
        prompts = self._prompts(key)
        told = {form for block in exchange.asked for form in (block.digest, block.bare)}
        return key in self.calls and (not prompts or not prompts.isdisjoint(told))

    def _prompts(self, key: str) -> frozenset[str]:
        """The digests that a conversation of this call may open with.

        An agent's prompt is in its call; what a skill that forks tells its agent is shown as the
        first text of that conversation.
        """
        call = self.calls.get(key)
        if call is not None and _name_of(call) in AGENT_TOOLS:
            prompt = _input(call).get("prompt")
            if isinstance(prompt, str):
                return frozenset(
                    block_digest({"type": "text", "text": text})
                    for text in (prompt, prompt.strip())
                )
        return self.opened.get(key, frozenset())

    def _matches(self, told: Sequence[str], thread: _Thread) -> int | None:
        """Where in a thread's history a request's own history begins; None where it is no part.

        It is the whole of it (0), but after the harness has made it short, when it is any end of
        it. An answer that was not shown may have been retried, and then it is not told.
        """
        history = thread.history
        for begin in range(len(history) + 1):
            if begin and not self.boundaries_left:
                return None
            if self._tells(told, history[begin:]):
                return begin
        return None

    def _tells(self, told: Sequence[str], history: Sequence[Exchange]) -> bool:
        """Whether these blocks are told of these answers, one answer after the other.

        A call is told as it was given or as it is shown. Within one answer calls may come last;
        thoughts may be left out, and so may what was broken off.
        """
        at = 0
        for exchange in history:
            left = list(exchange.blocks)
            begin = at
            while at < len(told):
                found = next((each for each in left if told[at] in self._forms_of(each)), None)
                if found is None:
                    break
                left.remove(found)
                at += 1
            if at == begin and exchange.message not in self.messages:
                continue
            if any(self._owed(each, exchange) for each in left):
                return False
        return at == len(told)

    def _forms_of(self, given: GivenBlock) -> tuple[str, str]:
        return given.digest, self.became.get(given.digest, given.digest)

    def _owed(self, given: GivenBlock, exchange: Exchange) -> bool:
        """Whether a later request has to tell this block of an answer that was taken up."""
        if given.blank or given.broken_off or given.kind in THOUGHT:
            return False
        return exchange.whole or self._forms_of(given)[1] in self._shown_digests(exchange)

    def _shown_digests(self, exchange: Exchange) -> set[str]:
        shown = self.messages.get(exchange.message or "")
        return {block.digest for block in shown.blocks} if shown is not None else set()

    def _history(self, exchange: Exchange, shown: _Shown, thread: _Thread) -> None:
        begin = self._matches(exchange.told, thread)
        if begin is None:
            self.find(
                Disagreement.FOREIGN_USED,
                f"message {exchange.message} answers a request whose history is not the "
                "transcript so far",
                shown.line,
                exchange.number,
            )
        elif begin:
            # The history was made short: one boundary of the stream answers for it.
            self.boundaries_left -= 1
            del thread.history[:begin]
        told = set(exchange.told)
        for earlier in thread.history:
            for each in earlier.substance:
                if each.kind in THOUGHT and each.digest not in told:
                    self.thoughts.add(each.digest)

    def _foreign_why(self, exchange: Exchange) -> str:
        if not self._own(exchange):
            return "its request is of another harness session"
        return "its request's head is no conversation's of this session"

    def _foreign(self, exchange: Exchange, *, used: bool) -> None:
        why = self._foreign_why(exchange)
        self.foreign.append(
            ForeignAnswer(exchange.number, exchange.model, exchange.session, used, why)
        )
        self.alone[Alone.FOREIGN] += not used

    # What only the provider saw.

    def _alone(self, exchange: Exchange) -> None:
        thread = next((each for each in self.threads.values() if exchange in each.exchanges), None)
        if thread is None:
            if self._of_a_conversation(exchange):
                self.find(
                    Disagreement.LEFT_OUT,
                    f"message {exchange.message} is of the session's own conversation and has no "
                    "place in the stream",
                    None,
                    exchange.number,
                )
            elif exchange.session is not None and self._own(exchange):
                # It is of this harness by its own word alone, which is enough for a name.
                self.beside.add(exchange.number)
                self.alone[Alone.SIDE_CALL] += 1
            else:
                self._foreign(exchange, used=False)
            return
        if exchange.status is None:
            self.alone[Alone.UNANSWERED] += 1
        elif exchange.message is None:
            self.alone[Alone.REFUSED] += 1
        elif not exchange.whole:
            self.alone[Alone.CUT] += 1
        elif not exchange.substance:
            self.alone[Alone.EMPTY] += 1
        elif self._retried(exchange, thread):
            self.alone[Alone.RETRIED] += 1
        elif self._beside(exchange, thread):
            self.alone[Alone.SIDE_CALL] += 1
        elif thread.key != MAIN and self._quiet(exchange, thread):
            self.alone[Alone.SUBAGENT] += 1
            self.not_shown += len(exchange.substance)
        else:
            self.find(
                Disagreement.LEFT_OUT,
                f"message {exchange.message} was answered whole and is not shown",
                None,
                exchange.number,
            )

    def _of_a_conversation(self, exchange: Exchange) -> bool:
        """Whether an answer that no thread explains is a whole one to the main conversation's head.

        Requests beside the transcript have a head of their own, and so have agents, of which one
        that an agent runs is not shown at all.
        """
        return (
            exchange.session is not None
            and self._own(exchange)
            and exchange.head == self._main_head()
            and exchange.whole
            and bool(exchange.substance)
        )

    def _quiet(self, exchange: Exchange, thread: _Thread) -> bool:
        """Whether the harness shows nothing of such an answer: texts of a subagent in the
        foreground, and everything of one that a subagent runs."""
        return self._hidden(thread) or (
            thread.key not in self.stream.background
            and all(block.kind != "tool_use" for block in exchange.substance)
        )

    def _hidden(self, thread: _Thread) -> bool:
        call = self.calls.get(thread.key)
        nested = call is not None and call.thread != MAIN
        return nested and all(block.thread != thread.key for block in self.stream.blocks)

    def _retried(self, exchange: Exchange, thread: _Thread) -> bool:
        """A later request of the thread tells the very same, so its answer stands for this one."""
        return any(
            later.number > exchange.number and later.messages == exchange.messages
            for later in thread.exchanges
        )

    def _beside(self, exchange: Exchange, thread: _Thread) -> bool:
        """The request ends with a text that is not of the transcript: it asks beside it."""
        shown = self._texts_of(thread.key)
        last = exchange.messages[-1] if exchange.messages else None
        first = thread.exchanges[0].messages[0] if thread.exchanges[0].messages else None
        if last is None or last.role == "assistant" or first is None:
            return False
        opening = {block.bare for block in first.blocks}
        return any(
            not block.result and block.bare and block.bare not in shown | opening
            for block in last.blocks
        )

    def _texts_of(self, key: str) -> set[str]:
        return {told.bare for told in self.stream.told if told.thread == key and not told.result}

    # Results and texts, in both directions.

    def _told(self) -> None:
        by_thread: dict[str, list[ShownTold]] = defaultdict(list)
        for told in self.stream.told:
            by_thread[told.thread].append(told)
        for key in {*by_thread, *self.threads}:
            thread = self.threads.get(key) or _Thread(key)
            self._results(thread, by_thread.get(key, []))
            self._texts(thread, by_thread.get(key, []))
        main = self.threads.get(MAIN)
        if self.task is not None and main is not None and main.exchanges:
            task = block_digest({"type": "text", "text": self.task.strip()})
            if not any(told.bare == task for told in main.exchanges[0].asked):
                self.find(
                    Disagreement.NOT_TOLD,
                    "the session's first request does not ask its task",
                    None,
                    main.exchanges[0].number,
                )

    def _results(self, thread: _Thread, shown: Sequence[ShownTold]) -> None:
        first: dict[str, tuple[int, Exchange, str, str]] = {}
        position = 0
        for exchange in thread.exchanges:
            for block in exchange.asked:
                if block.result and block.result not in first:
                    first[block.result] = (position, exchange, block.digest, block.bare)
                    position += 1
        seen: set[str] = set()
        before = -1
        for told in shown:
            if not told.result:
                continue
            self._after_its_call(told)
            found = first.get(told.result)
            if told.result in seen:
                what = f"a second result of call {told.result}"
                self.find(Disagreement.ONLY_IN_STREAM, what, told.line)
                continue
            seen.add(told.result)
            if found is None:
                self._unconfirmed(told, thread, f"the result of call {told.result}")
                continue
            place, exchange, exact, bare = found
            if told.digest != exact and told.bare != bare:
                what = f"the result of call {told.result} is not the one that was told"
                self.find(Disagreement.NOT_TOLD, what, told.line, exchange.number)
                continue
            self.confirmed_results += 1
            answer = self.messages.get(exchange.message or "")
            if place < before or (answer is not None and answer.line < told.line):
                what = f"the result of call {told.result} was told earlier than it is shown"
                self.find(Disagreement.ORDER, what, told.line, exchange.number)
            before = max(before, place)
        for call, (_, exchange, _, _) in first.items():
            if call not in seen and not self._hidden(thread):
                what = f"the result of call {call} was told and is not shown"
                self.find(Disagreement.LEFT_OUT, what, None, exchange.number)

    def _after_its_call(self, told: ShownTold) -> None:
        call = self.calls.get(told.result)
        if call is None:
            what = f"the result of call {told.result}, which is not shown"
            self.find(Disagreement.ONLY_IN_STREAM, what, told.line)
        elif call.thread != told.thread:
            what = f"the result of call {told.result} is shown in another conversation"
            self.find(Disagreement.ORDER, what, told.line)
        elif call.line > told.line:
            what = f"the result of call {told.result} is shown before the call"
            self.find(Disagreement.ORDER, what, told.line)

    def _texts(self, thread: _Thread, shown: Sequence[ShownTold]) -> None:
        told = {
            form
            for exchange in thread.exchanges
            for block in exchange.asked
            for form in (block.digest, block.bare)
            if not block.result
        }
        known: set[str] = set()
        for text in shown:
            if text.result:
                continue
            known |= {text.digest, text.bare}
            # No event holds such a text, and the harness tells its own in more than one way.
            if {text.digest, text.bare, text.reminder} & told:
                self.confirmed_texts += 1
            elif text.bare:
                self.unconfirmed += 1
        used = [each for each in thread.exchanges if each.message in self.messages]
        if self.task is not None and thread.key == MAIN:
            known.add(block_digest({"type": "text", "text": self.task.strip()}))
        call = self.calls.get(thread.key)
        prompt = _input(call).get("prompt") if call is not None else None
        if isinstance(prompt, str):
            known.add(block_digest({"type": "text", "text": prompt.strip()}))
        for exchange in used:
            for block in exchange.asked:
                if not block.result and block.bare and not {block.digest, block.bare} & known:
                    self.unseen.add(block.bare)

    def _unconfirmed(self, told: ShownTold, thread: _Thread, what: str) -> None:
        """What the provider was not told: a disagreement where the conversation went on."""
        after = next(
            (
                each
                for each in thread.exchanges
                if (shown := self.messages.get(each.message or "")) is not None
                and shown.line > told.line
            ),
            None,
        )
        if after is None:
            self.unconfirmed += 1
        else:
            self.find(Disagreement.NOT_TOLD, f"{what} was never told", told.line, after.number)


def _filled_in(value: Any) -> bool:
    """Whether a count is one that the harness fills in where the provider gave none."""
    if isinstance(value, dict):
        return all(_filled_in(each) for each in value.values())
    return value in (0, "", "standard")


def _input(block: ShownBlock) -> Mapping[str, Any]:
    value = block.block.get("input")
    return value if isinstance(value, dict) else {}


def _name_of(block: ShownBlock) -> str:
    return str(block.block.get("name"))


def _name(block: ShownBlock) -> str:
    return f"call {block.block.get('id')}" if block.kind == "tool_use" else f"a {block.kind}"
