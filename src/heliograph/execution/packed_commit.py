"""The text in which a commit keeps what its writer has read. It repeats nothing that its row, or the log of its run, has.

The text is a JSON list: part, from, entries, call, function, item, data, gap. It ends after its last value. See `heliograph.execution.tape`
for the entries, `packed_claim` for the data of a turn.

- A claim is a list of values without names. The ids of the run and the turn are left out, and ids that follow from them: the row has
  them. So the part of a claim is its epoch alone. Values that are the same for most claims end the list, and are left out together.
- The state and the memory of a run are left out as long as they are those of its recorded start.
- A time is a read of the clock, a number one of the monotonic clock, and null a view of the run that was the newest.
- The cause of a claim has only its position, if it is a signal of the same run: the log has the rest.
- The call that the commit is has no names of signals: the position of its row is theirs. It has no reaction: a replay computes it.
- Quotes and backslashes have changed places with two characters that JSON seldom has. The text is a string within the JSON of a
  kernel call, where each quote would take a backslash, and an escape at each pass over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Protocol

import msgspec

from heliograph.ids import signal_id
from heliograph.json_numbers import stored_number
from heliograph.records import Claimed
from heliograph.redaction import STARS, is_clean, redacted_text
from heliograph.types import JsonObject

_SWAPPED = bytes.maketrans(b'"\\`^', b'`^"\\')
BODY_BYTES_MAX = 64 * 1024 * 1024  # of one commit; the kernel accepts no more
_EARLIER = "{"  # texts were objects
RECORDED = "recording"  # in the memory of a run that is recorded
STARTED = "start"  # there, if the start is recorded, too: that of a fork is not
_USUAL: tuple[Any, ...] = (None, None, None, None, "running", None, None, {})  # the end of most claims
# The fields of a claim after its run, which most claims do not have: only those with another value than their default are kept.
_OPTIONAL = Claimed.__struct_fields__[Claimed.__struct_fields__.index("run") + 1 :]
_DEFAULTS = tuple(
    field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    for field in msgspec.structs.fields(Claimed)[-len(_OPTIONAL) :]
)
_options_of = attrgetter(*_OPTIONAL)


class EarlierFormat(ValueError):
    """A text of an earlier version of Heliograph."""


class RunLog(Protocol):
    """The log of the run, as claims refer to it. Both methods raise KeyError for what it does not have."""

    def cause(self, identifier: str) -> JsonObject:
        """The cause of a turn as its claim had it."""
        ...

    def start(self, run_id: str) -> tuple[JsonObject, JsonObject]:
        """The state and the memory of a run after its recorded start."""
        ...


def commit_text(body: Sequence[Any], gap: str | None) -> tuple[str, str | None]:
    """The text of a commit, and why the entries of its part are missing from now on; None if they are not.

    body: part, from, entries, call, function, item, and in the first commit of a part what it started from.
    """
    if gap is None:
        try:
            text = packed_text(body)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            gap = f"a value cannot be recorded: {error}"
        else:
            if 4 * len(text) <= BODY_BYTES_MAX or len(text.encode()) <= BODY_BYTES_MAX:
                return text, None
            gap = f"a commit would have recorded more than {BODY_BYTES_MAX} bytes"
    part, after, _, number, function, *_ = body
    return packed_text((part, after, [], number, function, {}, None, gap)), gap


def packed_text(body: Sequence[Any]) -> str:
    """The text of a body, without known secrets."""
    text = msgspec.json.encode(body)
    if not is_clean(text):
        text = msgspec.json.encode(_without_secrets(msgspec.json.decode(text)))
    return text.translate(_SWAPPED).decode()


def unpacked_text(text: str, turn_id: str | None) -> dict[str, Any]:
    """The body of a text: {part, from, call, entries, data, gap}. Its last entry is the call that the commit is.

    turn_id: of the row. Raises EarlierFormat, and TypeError or ValueError for a damaged text.
    """
    if text.startswith(_EARLIER):
        raise EarlierFormat("it was recorded by an earlier version of Heliograph")
    part, after, reads, number, function, item, *rest = msgspec.json.decode(text.encode().translate(_SWAPPED))
    if "reaction" in item:  # at least the start of such a run has one
        raise EarlierFormat("it was recorded by an earlier version of Heliograph")
    if isinstance(part, int):
        part = f"{turn_id}:{part}"
    entries = [*map(whole_entry, reads), ["call", number, function, item]]
    found = {"part": part, "from": after, "call": number, "entries": entries}
    return found | dict(zip(("data", "gap"), rest, strict=False))


def whole_entry(entry: Any) -> Any:
    """An entry of a tape as a recording has it. The entries of the usual reads are their values alone."""
    if entry is None:
        return ["view", None]
    if isinstance(entry, str):
        return ["now", entry]
    return ["monotonic", entry] if isinstance(entry, float | int) else entry


def _without_secrets(value: Any) -> Any:
    """A JSON value with stars in place of secrets. A number with the digits of one becomes a text, so that the text of a body stays JSON."""
    if isinstance(value, dict):
        return {redacted_text(key): _without_secrets(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_secrets(item) for item in value]
    if isinstance(value, str):
        return redacted_text(value)
    return value if is_clean(msgspec.json.encode(value)) else STARS


def packed_claim(claimed: Claimed, project: str, *, is_observed: bool) -> list[Any]:
    """What a claimed turn starts from."""
    run, run_id, turn_id, cause, inbox = claimed.run, claimed.run_id, claimed.turn_id, claimed.cause, claimed.inbox
    prefix, cause_id, options = f"sig_{run_id}_", cause.id, _options_of(claimed)
    place = len(prefix)  # behind the id of the run: of run_1 where this is run, it is 1_SEQ
    activation: Any = claimed.activation_id
    if activation[place:].isdigit() and activation.startswith(prefix):
        activation = int(activation[place:])
    is_logged = cause_id[place:].isdigit() and cause_id.startswith(prefix)
    packed = [
        project, is_observed, claimed.agent, claimed.target, claimed.epoch, claimed.priority, claimed.attempts, claimed.max_attempts,
        claimed.ttl_seconds, activation, int(cause_id[place:]) if is_logged else cause,
        run.version, run.open_turns, run.pending_reactions, run.activations,
    ]  # fmt: skip
    is_woken = len(inbox) == 1 and inbox[0].correlation_id == cause_id and inbox[0].message_type == "turn"
    # each change of the state or the memory raises the version
    is_started = run.version == 1 and run.memory.get(RECORDED) == STARTED
    rest = (
        claimed.context_box_id, None if claimed.agent_id == f"{run_id}/{claimed.agent}" else claimed.agent_id,
        None if claimed.output_box_id == f"box_{turn_id}" else claimed.output_box_id, None if is_woken else inbox, run.status,
        None if is_started else run.state, None if is_started else run.memory,
        {} if options == _DEFAULTS else dict(zip(_OPTIONAL, options, strict=True)),
    )  # fmt: skip
    return packed if rest == _USUAL else [*packed, *rest]


def unpacked_data(data: Any, run_id: str, turn_id: str | None, log: RunLog) -> JsonObject:
    """What a part started from. Raises KeyError, TypeError, ValueError."""
    if not isinstance(data, list):
        return data  # type: ignore[no-any-return]  # of a reaction
    if len(data) == 3:
        return {"run_id": run_id, "state": data[0], "caller": {**data[1], RECORDED: STARTED}, "memory": data[2]}
    (
        project, is_observed, agent, target, epoch, priority, attempts, max_attempts, ttl_seconds, activation, cause, version,
        open_turns, pending, activations, *rest,
    ) = data  # fmt: skip
    context_box_id, agent_id, output_box_id, inbox, status, state, memory, options = rest or _USUAL
    if isinstance(cause, int):
        cause = log.cause(signal_id(run_id, cause))
    if memory is None:
        state, memory = log.start(run_id)
    claimed = {
        "agent_id": agent_id or f"{run_id}/{agent}", "agent": agent, "run_id": run_id, "target": target, "turn_id": turn_id,
        "epoch": epoch, "priority": priority, "attempts": attempts, "max_attempts": max_attempts, "ttl_seconds": ttl_seconds,
        "context_box_id": context_box_id, "output_box_id": output_box_id or f"box_{turn_id}",
        "activation_id": signal_id(run_id, activation) if isinstance(activation, int) else activation, "cause": cause,
        "inbox": [{"message_type": "turn", "correlation_id": cause["id"]}] if inbox is None else inbox,
        "run": {"run_id": run_id, "status": status, "version": version, "state": state, "memory": memory,
                "open_turns": open_turns, "pending_reactions": pending, "activations": activations},
        **options,
    }  # fmt: skip
    return {"claimed": claimed, "project": project, "is_observed": is_observed}


def as_jsonb(value: Any) -> Any:
    """A JSON value as PostgreSQL returns it from a column of type jsonb: the order of its keys, and the form of its numbers."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
        return {key: as_jsonb(value[key]) for key in keys}
    if isinstance(value, list):
        return [as_jsonb(item) for item in value]
    return stored_number(value) if isinstance(value, float) else value
