"""The panes of `helio play` as lines of text: timeline, causes, agents, state and text at the cursor of a player.

Pure, so that a pane can be tested without a terminal. Everything from the log passes `safe_repr`, which redacts secrets and escapes
control characters: a payload cannot move the terminal's cursor or change its title.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.text import Text

from heliograph.error_text import counted, safe_repr
from heliograph.key_patterns import json_without_secrets, text_without_secrets
from heliograph.playback.player import Player
from heliograph.playback.snapshot import AgentSnapshot, CallSnapshot, Snapshot
from heliograph.signals.model import Signal
from heliograph.signals.signal_text import clock, json_text, meaning, short_payload

CAUSES_MAX = 200
_LINE_MAX = 1000
_PAYLOAD_LINES_MIN = 6
_CONSOLE = Console(color_system=None, legacy_windows=False)  # to measure and wrap; nothing is printed on it
_TAIL_CHARACTERS = 20_000  # of a text; a pane shows its last lines
_STYLES = {
    "success": "green",
    "running": "cyan",
    "queued": "yellow",
    "idle": "dim",
    "failed": "red",
    "timeout": "red",
    "canceled": "red",
}


def title_line(player: Player, snapshot: Snapshot, note: str = "") -> Text:
    """The position, whether it plays, and the status of the run."""
    signal = snapshot.signal
    mark = "▶" if player.is_playing else "■"
    parts = [
        f"{safe_repr(player.log.run_id, 32) or '-'}",
        f"{player.cursor}/{player.log.last_seq}",
        f"{mark} {player.speed:g}x",
    ]
    if signal is not None:
        parts.append(clock(signal.timestamp))
    parts.append(snapshot.outcome or snapshot.status)
    usage = snapshot.usage
    if usage.input_tokens or usage.output_tokens:
        parts.append(f"{usage.input_tokens} in {usage.output_tokens} out")
    if player.is_live:
        parts.append("live")
    if note:
        parts.append(note)
    return Text("  ".join(parts), style="bold", no_wrap=True)


def timeline_lines(player: Player, first: int, count: int) -> list[Text]:
    """The signals from position `first` on; a mark at the cursor, and those after it dim."""
    found = []
    for signal in player.log.signals(first - 1, first + count - 1):
        at_cursor = signal.seq == player.cursor
        text = f"{'>' if at_cursor else ' '} {signal.seq:>6} {clock(signal.timestamp)} {signal.name:<22} {signal.agent or '-':<12} "
        style = "reverse" if at_cursor else "dim" if signal.seq > player.cursor else ""
        found.append(Text(safe_repr(text + short_payload(signal, 200), _LINE_MAX), style=style, no_wrap=True))
    return found


def cause_lines(player: Player, width: int, count: int) -> list[Text]:
    """The signal at the cursor, and below it the chain of its causes up to the root. With room for it, its payload too."""
    signal = player.signal
    if signal is None:
        return [Text("before the first signal", style="dim")]
    lines = [Text(safe_repr(f"{signal.seq} {signal.name}: {meaning(signal)}", _LINE_MAX), no_wrap=True)]
    chain = causes(player, signal)
    if count > len(chain) + _PAYLOAD_LINES_MIN:
        payload = msgspec.json.format(json_without_secrets(signal.payload)).decode()
        lines += [Text(part, no_wrap=True) for part in _wrapped(payload, width)[: count - len(chain) - 1]]
    for depth, cause in enumerate(chain[:count]):
        text = f"{' ' * min(depth, 8)}└ {cause.seq} {cause.name}  {cause.agent or '-'}  {short_payload(cause, 100)}"
        lines.append(Text(safe_repr(text, _LINE_MAX), style="dim" if depth else "", no_wrap=True))
    return _shortened(lines, count, len(lines))


def causes(player: Player, signal: Signal) -> list[Signal]:
    """The causes of a signal, the nearest first; at most 200."""
    found: list[Signal] = []
    while len(found) < CAUSES_MAX:
        parent = player.log.entry(signal.seq).parent
        if not isinstance(parent, int) or not player.log.first_seq <= parent < signal.seq:
            break
        signal = player.log.signal(parent)
        found.append(signal)
    return found


def agent_lines(snapshot: Snapshot, count: int) -> list[Text]:
    """One line per agent: status, phase, turns, usage, what it waits for. Those with the newest signals come first."""
    agents = sorted(
        snapshot.agents.values(), key=lambda agent: (len(agent.newest_signal), agent.newest_signal), reverse=True
    )
    lines = []
    for agent in agents[:count]:
        text = Text(no_wrap=True)
        text.append(f"{safe_repr(agent.name, 20):<12} ")
        text.append(f"{agent.status:<8} ", style=_STYLES.get(agent.status, ""))
        text.append(safe_repr(_details(agent), _LINE_MAX))
        lines.append(text)
    return _shortened(lines, count, len(agents)) or [Text("no agent yet", style="dim")]


def state_lines(snapshot: Snapshot, count: int) -> list[Text]:
    """One line per key of the state."""
    lines = [
        Text.assemble((f"{safe_repr(key, 40)}  ", "bold"), json_text(value, _LINE_MAX), no_wrap=True)
        for key, value in sorted(snapshot.state.items())[:count]
    ]
    return _shortened(lines, count, len(snapshot.state)) or [Text("no state yet", style="dim")]


def text_lines(snapshot: Snapshot, agent: str | None, width: int, count: int) -> list[Text]:
    """The end of what an agent has streamed, wrapped to `width`: its thinking in italics, then its text. agent: None for the newest."""
    found = agent_with_text(snapshot, agent)
    if found is None:
        return [Text("no text yet", style="dim")]
    lines = [Text(safe_repr(found.name, 40), style="bold", no_wrap=True)]
    body: list[Text] = []
    for text, style in ((found.thinking, "italic dim"), (found.text, "")):
        body += [Text(part, style=style, no_wrap=True) for part in _wrapped(text[-_TAIL_CHARACTERS:], max(width, 10))]
    return lines + body[-max(1, count - 1) :]


def agent_with_text(snapshot: Snapshot, agent: str | None) -> AgentSnapshot | None:
    """Return the agent whose text the pane shows: the named one, or else the one with a text and the newest signal."""
    if agent is not None:
        return snapshot.agents.get(agent)
    found = [each for each in snapshot.agents.values() if each.has_text]
    return max(found, key=lambda each: (len(each.newest_signal), each.newest_signal), default=None)


def call_text(call: CallSnapshot) -> str:
    """A call in one line."""
    output = "" if call.output is None else f" = {json_text(call.output, 100)}"
    return f"{call.name or call.id}({json_text(call.input, 100)}) {call.status}{output}"


def snapshot_lines(snapshot: Snapshot) -> list[str]:
    """A whole snapshot for people, one fact per line."""
    signal = snapshot.signal
    lines = [f"run      {safe_repr(snapshot.run_id)}  {snapshot.outcome or snapshot.status}",
             f"at       {snapshot.seq}  " + ("the start" if signal is None else f"{clock(signal.timestamp)}  {signal.name}  {signal.agent or '-'}")]  # fmt: skip
    lines += [f"state    {text.plain}" for text in state_lines(snapshot, 1000)]
    for agent in snapshot.agents.values():
        lines.append(
            f"agent    {safe_repr(agent.name)}  {agent.status}  {safe_repr(_details(agent), _LINE_MAX)}".rstrip()
        )
        for kind, text in (("thinking", agent.thinking), ("text", agent.text)):
            if text:
                lines.append(f"  {kind}  {safe_repr(text, _LINE_MAX)}")
        lines += [f"  done  {call_text(call)}" for call in agent.calls_done[-5:]]
        lines += [f"  waits for  {call_text(call)}" for call in agent.calls_open]
    lines += [
        f"pending  {safe_repr(each.agent)} was activated by {safe_repr(str(each.cause))}"
        for each in snapshot.pending_reactions
    ]
    return lines


def _details(agent: AgentSnapshot) -> str:
    """The details of an agent in the order of their use, because a narrow pane cuts the end."""
    parts = []
    if waits := agent.calls_open:
        parts.append("waits for " + ", ".join(call.name or call.id for call in waits[:3]))
    if agent.phase is not None:
        rounds = agent.turns[-1].round
        parts.append(agent.phase + (f" round {rounds}" if rounds > 1 else ""))
    if pending := len(agent.pending_reactions):
        parts.append(f"{pending} queued")
    if agent.progress is not None and agent.status == "running":
        parts.append(f"{agent.progress[0]:.0%} {agent.progress[1]}".strip())
    if agent.turns_ended:
        parts.append(counted(agent.turns_ended, "turn"))
    if agent.skipped:
        parts.append(f"skipped {agent.skipped}")
    if agent.usage.input_tokens or agent.usage.output_tokens:
        parts.append(f"{agent.usage.input_tokens} in {agent.usage.output_tokens} out")
    if len(agent.calls_done):
        parts.append(f"{counted(len(agent.calls_done), 'call')} done")
    return ", ".join(parts)


def _wrapped(text: str, width: int) -> list[str]:
    """The lines of a text, cut at `width`, with control characters escaped."""
    lines = []
    for line in text_without_secrets(text).split("\n") if text else []:  # as a whole: a key may have several lines
        safe = safe_repr(line, _TAIL_CHARACTERS * 10)
        lines += [piece.plain for piece in Text(safe).wrap(_CONSOLE, width)] or [""]
    return lines


def _shortened(lines: Sequence[Text], count: int, total: int) -> list[Text]:
    """Return at most `count` lines; the last one counts those that are left out."""
    if total <= count or count < 1:
        return list(lines)
    return [*lines[: max(0, count - 1)], Text(f"… {total - count + 1} more", style="dim", no_wrap=True)]
