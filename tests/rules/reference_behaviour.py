"""What the reference implementation's own tests expect of patterns, the player and snapshots, row by row.

The Agent Signals specification describes Open Harness. These rows are the facts in the tests of its package `signals` (patterns, player,
snapshot; commits ab7f2569, 344746d9). `tests/runtime/test_reference_store.py` has those about its stores. A row where Heliograph differs
on purpose has what it does instead, and why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from heliograph.errors import HeliographError
from heliograph.playback.player import Player
from heliograph.playback.snapshot import AgentSnapshot
from heliograph.signals.model import Signal
from tests.rules.playback_kit import signal

# ── Why rows differ ──

NO_EMPTY_SEGMENT = (
    "G-41: `*` is exactly one segment that is not empty; a name has no empty segment, so the name is rejected, too"
)
NAMES_ONLY = "the specification has wildcards alone; the store decides whether a pattern is within a grant (S5), which no regular expression allows"
NAME_CHARACTERS = "a name has letters, digits, '_', '-' and '.' (docs/reference/signals.md), so that it is safe in subjects, paths and lines"
FROM_ONE = "positions are `seq`, which counts from 1; the start is 0"
WRONG_MOVES = "a wrong move raises an error with a code and the next step, and the cursor stays; a typing error must not look like a move"
COUNTS = "step and back take a number, and return how many signals there were; `signal` is the one at the cursor"
PER_AGENT = "issue 14, part 6: a snapshot is per agent, because agents run in parallel"
STATUSES = "a call has the status of its result (`success`, `failed`, ...), as tool:result has (SIG-33); `open` before"
IN_THE_LOG = "issue 14, part 6, does not list it; the player's pattern moves find such signals, and a copy would grow with the log"


class Row(NamedTuple):
    """An observation. reference: what the reference implementation's test expects. ours, why: if Heliograph differs."""

    case: str
    observe: Callable[[], object]
    reference: object
    ours: object = None
    why: str = ""

    @property
    def expected(self) -> object:
        return self.ours if self.why else self.reference


class PatternRow(NamedTuple):
    """Whether a pattern matches a name. rejected: Heliograph rejects the pattern with this code."""

    pattern: Any
    name: str
    reference: bool
    why: str = ""
    rejected: str = ""


PATTERNS = [
    PatternRow("node:*:completed", "node:analyst:completed", reference=True),
    PatternRow("node:*:completed", "node:trader:completed", reference=True),
    PatternRow("node:*:completed", "node::completed", reference=True, why=NO_EMPTY_SEGMENT),
    PatternRow("node:*:completed", "node:a:b:completed", reference=False),
    PatternRow("provider:**", "provider:claude", reference=True),
    PatternRow("provider:**", "provider:claude:text:delta", reference=True),
    PatternRow("provider:**", "provider:", reference=True, why=NO_EMPTY_SEGMENT),
    PatternRow("provider:**", "other:claude", reference=False),
    PatternRow("*:*:completed", "node:analyst:completed", reference=True),
    PatternRow("*:*:completed", "task:runner:completed", reference=True),
    PatternRow("*:*:completed", "a:b:completed", reference=True),
    PatternRow("*:*:completed", "a:b:c:completed", reference=False),
    PatternRow("state.update", "state.update", reference=True),
    PatternRow("state.update", "statexupdate", reference=False),
    PatternRow("*:complete", "analysis:complete", reference=True),
    PatternRow("*:complete", "trade:complete", reference=True),
    PatternRow("*:complete", "a:b:complete", reference=False),
    PatternRow("state:*", "state:analysis", reference=True),
    PatternRow("state:*", "state:trade", reference=True),
    PatternRow("state:*", "state:", reference=True, why=NO_EMPTY_SEGMENT),
    PatternRow("state:*", "state:a:b", reference=False),
    PatternRow("analysis:complete", "analysis:complete", reference=True),
    PatternRow("analysis:complete", "analysis:incomplete", reference=False),
    PatternRow("node:*:activated", "node:analyst:activated", reference=True),
    PatternRow("node:*:activated", "node:trader:activated", reference=True),
    PatternRow("state.value[0]", "state.value[0]", reference=True, why=NAME_CHARACTERS, rejected="invalid_character"),
    PatternRow("state.value[0]", "statexvalue00", reference=False, why=NAME_CHARACTERS, rejected="invalid_character"),
    PatternRow("test:event", "test:event", reference=True),
    PatternRow("test:event", "test:other", reference=False),
    PatternRow("provider:*:response", "provider:claude:response", reference=True),
    PatternRow("provider:*:response", "provider:openai:response", reference=True),
    PatternRow("provider:*:response", "provider:response", reference=False),
    PatternRow(r"^(analysis|trade):complete$", "trade:complete", reference=True, why=NAMES_ONLY, rejected="invalid_character"),
]  # fmt: skip
# several patterns at once: the names that match one of them
SEVERAL = [
    (["analysis:complete", "trade:proposed", "node:*:completed"], "analysis:complete", True),
    (["analysis:complete", "trade:proposed", "node:*:completed"], "trade:proposed", True),
    (["analysis:complete", "trade:proposed", "node:*:completed"], "node:analyst:completed", True),
    (["analysis:complete", "trade:proposed"], "review:complete", False),
    (["analysis:complete", "trade:proposed"], "other:event", False),
    ([], "any:event", False),
]


def events(count: int) -> Player:
    return Player([signal(n + 1, f"event:{n}", payload={"index": n}) for n in range(count)])


def of(*given: tuple[str, Any]) -> Player:
    """A player before signals of one agent, by name and payload."""
    return Player([signal(seq, name, "a", None, payload) for seq, (name, payload) in enumerate(given, 1)])


def deltas(*contents: str) -> Player:
    return of(*(("text:delta", {"content": content}) for content in contents))


def moved(player: Player, *moves: Callable[[Player], object]) -> Player:
    for move in moves:
        move(player)
    return player


def index(player: Player) -> int:
    """The position of the cursor as the reference implementation counts it: from 0, and -1 at the start."""
    return player.cursor - 1


def error_of(act: Callable[[], object]) -> str:
    """The code of the error that a call raises."""
    try:
        act()
    except HeliographError as error:
        return error.code
    return "no error"


def text(player: Player) -> str:
    """The text at the cursor; empty if the agent is not there yet."""
    agent = player.snapshot.agents.get("a")
    return "" if agent is None else agent.text


def names(player: Player, pattern: str) -> list[str]:
    """The names of all signals that match, in order."""
    return [found.name for found in iter(lambda: player.next(pattern), None)]


def places(player: Player, pattern: str) -> list[int]:
    return [index(player) for _ in iter(lambda: player.next(pattern), None)]


def name_of(found: Signal | None) -> str | None:
    return None if found is None else found.name


TOOLS = [("text:delta", {"content": "a"}), ("tool:call", {}), ("text:delta", {"content": "b"}), ("tool:result", {})]
STEP, BACK, END = Player.step, Player.back, Player.to_end


def marked() -> Player:
    """Three signals, with a checkpoint after the second."""
    return moved(events(3), STEP, STEP, lambda p: p.set_checkpoint("midpoint"), Player.to_start)


PLAYER = [
    Row("the start is before the first signal", lambda: index(events(3)), -1),
    Row("nothing is current at the start", lambda: (events(3).signal, events(3).is_at_end), (None, False)),
    Row("the number of signals", lambda: len(events(5).log), 5),
    Row("a step leads to the first signal", lambda: (p := moved(events(3), STEP), name_of(p.signal), index(p))[1:], ("event:0", 0)),
    Row("a step returns its signal", lambda: events(3).step(), "event:0", 1, COUNTS),
    Row("a step at the end leads nowhere", lambda: (p := moved(events(2), STEP, STEP, STEP), index(p), p.is_at_end)[1:], (1, True)),
    Row("a step at the end returns nothing", lambda: moved(events(2), END).step(), None, 0, COUNTS),
    Row("a step changes the snapshot", lambda: text(moved(deltas("Hello", " world"), STEP)), "Hello"),
    Row("two steps change it further", lambda: text(moved(deltas("Hello", " world"), STEP, STEP)), "Hello world"),
    Row("back leads to the signal before", lambda: index(moved(events(3), STEP, STEP, BACK)), 0),
    Row("back returns the signal that it leaves", lambda: moved(events(3), STEP, STEP).back(), "event:1", 1, COUNTS),
    Row("back at the start leads nowhere", lambda: (events(3).back(), index(moved(events(3), BACK)))[1], -1),
    Row("back at the start returns nothing", lambda: events(3).back(), None, 0, COUNTS),
    Row("back computes the snapshot again", lambda: text(moved(deltas("a", "b", "c"), STEP, STEP, STEP, BACK)), "ab"),
    Row("a jump to the third signal", lambda: (p := moved(events(5), lambda p: p.seek(3)), index(p), name_of(p.signal))[1:], (2, "event:2")),
    Row("a jump far before the start", lambda: error_of(lambda: events(5).seek(-10)), "at the start", "seek_out_of_range", WRONG_MOVES),
    Row("a jump far behind the end", lambda: error_of(lambda: events(5).seek(100)), "at the end", "seek_out_of_range", WRONG_MOVES),
    Row("a jump has the snapshot of its target", lambda: text(moved(deltas("a", "b", "c"), lambda p: p.seek(2))), "ab"),
    Row("a jump to a checkpoint", lambda: index(moved(marked(), lambda p: p.to_checkpoint("midpoint"))), 1),
    Row("an unknown checkpoint", lambda: error_of(lambda: events(3).to_checkpoint("unknown")), False, "unknown_checkpoint", WRONG_MOVES),
    Row("the next signals that match", lambda: names(of(*TOOLS), "tool:*"), ["tool:call", "tool:result"]),
    Row("their places", lambda: places(of(*TOOLS), "tool:*"), [1, 3]),
    Row("no next signal matches", lambda: events(3).next("nonexistent:*"), None),
    Row("the previous signal that matches",
        lambda: (p := moved(of(("tool:call", {}), ("text:delta", {"content": "a"}), ("text:delta", {"content": "b"}), ("tool:result", {})),
                            END), name_of(p.previous("text:*")), index(p))[1:], ("text:delta", 2)),
    Row("rewinding leads to the start", lambda: index(moved(events(5), STEP, STEP, STEP, Player.to_start)), -1),
    Row("rewinding resets the snapshot", lambda: text(moved(deltas("hello"), STEP, Player.to_start)), ""),
    Row("fast forward leads to the last signal", lambda: (p := moved(events(5), END), index(p), p.is_at_end)[1:], (4, True)),
    Row("a look at a signal does not move", lambda: (p := events(3), p.log.signal(2).name, index(p))[1:], ("event:1", -1)),
    Row("a look before the start", lambda: error_of(lambda: events(3).log.signal(0)), None, "unknown_signal", WRONG_MOVES),
    Row("a look behind the end", lambda: error_of(lambda: events(3).log.signal(11)), None, "unknown_signal", WRONG_MOVES),
    Row("a look at two signals", lambda: [each.name for each in events(5).log.signals(1, 3)], ["event:1", "event:2"]),
    Row("all signals that match", lambda: places(of(TOOLS[0], TOOLS[1], TOOLS[2], ("text:complete", {"content": "ab"})), "text:*"), [0, 2, 3]),
    Row("position, snapshot and checkpoints at once",
        lambda: (p := moved(events(3), STEP), index(p), p.snapshot.seq, dict(p.checkpoints))[1:], (0, 0, {}), (0, 1, {}), FROM_ONE),
]  # fmt: skip


def agent(*given: tuple[str, Any]) -> AgentSnapshot:
    """The agent after these signals."""
    return moved(of(*given), END).snapshot.agents["a"]


Given: TypeAlias = "tuple[str, dict[str, Any]]"
START: Given = ("harness:start", {"input": {}})
ENDED: Given = ("harness:end", {})
CALL = ("tool:call", {"id": "call_1", "name": "get_weather", "input": {"city": "NYC"}})
RESULT = ("tool:result", {"id": "call_1", "name": "get_weather", "result": {"temp": 72}})
FAILED = ("tool:result", {"id": "call_1", "name": "get_weather", "result": None, "error": "Failed"})
HELLO = [("harness:start", {}), ("text:delta", {"content": "Hello"}), ("text:delta", {"content": " world"}), ENDED]


def thinking(*contents: str) -> str:
    return agent(*(("thinking:delta", {"content": content}) for content in contents)).thinking


SNAPSHOTS = [
    Row("before all signals", lambda: (s := Player().snapshot, s.seq, s.status, dict(s.agents), s.waits)[1:], (-1, "new", {}, []),
        (0, "new", {}, []), FROM_ONE),
    Row("a model call runs", lambda: (agent(START).status, agent(START).usage.model_calls), (True, 1), ("running", 1), PER_AGENT),
    Row("a model call has ended, its turn has not", lambda: agent(START, ENDED).status, False, "running", PER_AGENT),
    Row("pieces of a text are joined", lambda: agent(*HELLO[1:3], ("text:delta", {"content": "!"})).text, "Hello world!"),
    Row("a complete text replaces the pieces",
        lambda: agent(("text:delta", {"content": "partial"}), ("text:complete", {"content": "full text"})).text, "full text"),
    Row("pieces of thinking are joined", lambda: thinking("Let me think", "..."), "Let me think..."),
    Row("the number of pieces", lambda: hasattr(agent(*HELLO), "delta_count"), True, False, IN_THE_LOG),
    Row("a tool call is open", lambda: [(c.id, c.name, c.status) for c in agent(CALL).calls_open], [("call_1", "get_weather", "pending")],
        [("call_1", "get_weather", "open")], STATUSES),
    Row("a tool call has a result", lambda: [(c.status, c.output) for c in agent(CALL, RESULT).calls_done],
        [("complete", {"temp": 72})], [("success", {"temp": 72})], STATUSES),
    Row("a tool call has failed", lambda: [(c.status, c.output) for c in agent(CALL, FAILED).calls_done],
        [("error", "Failed")], [("failed", "Failed")], STATUSES),
    Row("an ended call is not open", lambda: agent(CALL, RESULT).calls_open, []),
    Row("the last error of a model", lambda: hasattr(agent(("harness:error", {"code": "ERR"})), "last_error"), True, False, IN_THE_LOG),
    Row("it is found by its name",
        lambda: (p := moved(of(("harness:error", {"code": "ERR", "message": "Something broke"}), ENDED), END), p.previous("harness:error"),
                 getattr(p.signal, "payload", None))[2], {"code": "ERR", "message": "Something broke"}),
    Row("the newest payload of each custom signal",
        lambda: hasattr(moved(of(("trade:proposed", {"amount": 100})), END).snapshot, "custom"), True, False, IN_THE_LOG),
    Row("it is found by its name, too",
        lambda: (p := moved(of(("analysis:complete", {"result": "bullish"}), ("trade:proposed", {"amount": 100})), END),
                 p.previous("analysis:*"), getattr(p.signal, "payload", None))[2], {"result": "bullish"}),
    Row("how often each name came", lambda: hasattr(moved(of(START), END).snapshot, "signal_counts"), True, False, IN_THE_LOG),
    Row("at the end of the log", lambda: (moved(of(*HELLO), END).snapshot.seq, agent(*HELLO).text), (3, "Hello world"), (4, "Hello world"),
        FROM_ONE),
    Row("at the second signal", lambda: (p := moved(of(*HELLO), lambda p: p.seek(2)), text(p), p.snapshot.agents["a"].status)[1:],
        ("Hello", "running")),
    Row("at every signal", lambda: (p := deltas("a", "b", "c"), [text(p) for _ in iter(p.step, 0)])[1], ["a", "ab", "abc"]),
]  # fmt: skip
