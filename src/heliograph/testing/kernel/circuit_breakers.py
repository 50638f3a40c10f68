"""Admit calls behind circuit breakers, and count their results, in memory, like 14_circuit_breakers and 14_circuit_calls.sql.

The in-memory kernel runs one call at a time, so the lock of a breaker is always free.
"""

from __future__ import annotations

from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.jsonb import ABSENT, SqlError, get, get_text
from heliograph.testing.kernel.limits import rejection
from heliograph.testing.kernel.tables import Row, interval, timestamp
from heliograph.testing.kernel.transaction import Transaction

_TYPES = ("tool_call", "delegation", "model_call")
_COUNTS = ("failure_threshold", "half_open_max_calls", "success_threshold")
_YEAR_SECONDS = 31_622_400


def wrong_circuit(path: str, circuit: Any) -> str | None:
    if circuit is None or circuit is ABSENT:
        return None
    if not isinstance(circuit, dict):
        return f"{path} must be an object"
    target, seconds = circuit.get("target"), circuit.get("timeout_seconds")
    if get_text(circuit, "type") not in _TYPES:
        return f"{path}.type must be tool_call, delegation or model_call"
    if not isinstance(target, str) or not 1 <= len(target.encode()) <= 200:
        return f"{path}.target must have 1 to 200 bytes"
    for key in _COUNTS:
        count = circuit.get(key)
        if isinstance(count, bool) or not isinstance(count, int | float) or not 1 <= count <= 1000 or count % 1:
            return f"{path}.{key} must be a whole number from 1 to 1000"
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0.001 <= seconds <= _YEAR_SECONDS:
        return f"{path}.timeout_seconds must be between 0.001 and 366 days"
    if circuit["success_threshold"] > circuit["half_open_max_calls"]:
        return f"{path}.success_threshold must be at most half_open_max_calls, because the breaker could not close"
    return None


def check_circuit(path: str, circuit: Any) -> None:
    if (wrong := wrong_circuit(path, circuit)) is not None:
        raise SqlError("22023", wrong)


def _reject_circuit(circuit: Row, state: str, until: int | None, now: int) -> Row:
    kind, target, at = circuit["type"], circuit["target"], None if until is None else timestamp(until)
    why = (
        f"open until {at}: its target fails" if state == "open"
        else "half open, and all its trial calls are under way"
    )  # fmt: skip
    return {**rejection("CIRCUIT_OPEN", f"the circuit breaker of {kind} {target} is {why}"),
            "circuit": {"type": kind, "target": target, "state": state, "until": at, "retry_seconds": max((until or now) - now, 0) / 1_000_000}}  # fmt: skip


def admit_call(tx: Transaction, turn_id: str, call_id: str, circuit: Row, timeout: float | None) -> Row:
    """Returns {circuit} or a rejection. Bugs: trials_unbounded, open_admits."""
    breaker = _circuit_breaker(tx, circuit)
    if breaker["state"] != "closed" or len(_calls(tx, breaker)) >= circuit["failure_threshold"]:
        breaker = _move_circuit(tx, circuit)
    if breaker["state"] == "open" and "open_admits" not in tx.bugs:
        return _reject_circuit(circuit, "open", breaker["open_until"], tx.now)
    if breaker["state"] == "half_open":
        calls = _calls(tx, breaker)
        if len(calls) >= circuit["half_open_max_calls"] and "trials_unbounded" not in tx.bugs:
            until = min((c["expires_at"] for c in calls if c["status"] == "trial"), default=None)
            return _reject_circuit(circuit, "half_open", until, tx.now)
        _insert_call(tx, breaker, turn_id, call_id, "trial", expires_at=_expiry(tx, circuit, timeout))
    mark = {key: breaker[key] for key in ("type", "target", "generation")}
    return {"circuit": {**mark, "is_trial": breaker["state"] == "half_open"}}


def reject_if_open(tx: Transaction, circuit: Any) -> Row | None:
    """None, or the rejection of a new call because its breaker is open."""
    breaker = _circuit_breaker(tx, circuit) if isinstance(circuit, dict) else None
    if breaker is None or breaker["state"] != "open" or "open_admits" in tx.bugs:
        return None
    is_over = not breaker["changed_at"] <= tx.now < breaker["open_until"]
    return None if is_over else _reject_circuit(circuit, "open", breaker["open_until"], tx.now)


def _expiry(tx: Transaction, circuit: Row, timeout: float | None) -> int:
    return tx.now + interval(circuit["timeout_seconds"] if timeout is None else timeout)


def _circuit_breaker(tx: Transaction, circuit: Row) -> Row:
    found = tx.tables.circuit_breakers.get((circuit["type"], circuit["target"]))
    return found or {"type": circuit["type"], "target": circuit["target"], "state": "closed", "generation": 0}


def _calls(tx: Transaction, breaker: Row) -> list[Row]:
    """The calls that count in the present state."""
    return [
        c for key, c in sorted(tx.tables.circuit_calls.items())
        if key[:3] == (breaker["type"], breaker["target"], breaker["generation"])
    ]  # fmt: skip


def _insert_call(
    tx: Transaction, mark: Row, turn_id: str, call_id: str, status: str, *, expires_at: int | None = None,
    ended_at: int | None = None,
) -> None:  # fmt: skip
    position = tx.next("circuit_position")
    key = (mark["type"], mark["target"], mark["generation"], position)
    tx.insert(tx.tables.circuit_calls, key, {
        "type": mark["type"], "target": mark["target"], "generation": mark["generation"], "position": position,
        "agent_turn_id": turn_id, "call_id": call_id, "status": status, "expires_at": expires_at, "ended_at": ended_at,
    })  # fmt: skip


def _delete(tx: Transaction, call: Row) -> None:
    tx.delete(tx.tables.circuit_calls, (call["type"], call["target"], call["generation"], call["position"]))


def _move_circuit(tx: Transaction, circuit: Row) -> Row:
    key, table = (circuit["type"], circuit["target"]), tx.tables.circuit_breakers
    while True:
        breaker = _circuit_breaker(tx, circuit)
        if breaker["state"] == "open" and breaker["changed_at"] > tx.now:
            tx.update(
                table,
                breaker,
                open_until=tx.now + max(breaker["open_until"] - breaker["changed_at"], 0),
                changed_at=tx.now,
            )
        elif breaker["state"] == "half_open":
            _end_lost_trials(tx, breaker)
        calls = _calls(tx, breaker)
        following = _next_state(tx, circuit, breaker, calls)
        if following is None:
            return breaker
        failed_at = max((c["ended_at"] for c in calls if c["status"] == "failure"), default=None)
        until = None
        if following == "open" and failed_at is not None:
            until = min(failed_at, tx.now) + interval(circuit["timeout_seconds"])
        row = {"type": key[0], "target": key[1], "state": following, "generation": (breaker["generation"] + 1) % 10**15,
               "open_until": until, "changed_at": tx.now}  # fmt: skip
        if key in table:
            tx.update(table, table[key], **row)
        else:
            tx.insert(table, key, row)
        for call in calls:
            _delete(tx, call)


def _next_state(tx: Transaction, circuit: Row, breaker: Row, calls: list[Row]) -> str | None:
    failures, successes = (sum(c["status"] == status for c in calls) for status in ("failure", "success"))
    needed, trials = circuit["success_threshold"], circuit["half_open_max_calls"]
    if breaker["state"] == "closed":
        return "open" if failures >= circuit["failure_threshold"] else None
    if breaker["state"] == "open":
        return "half_open" if tx.now >= breaker["open_until"] else None
    if successes >= needed:
        return "closed"
    return "open" if failures > trials - needed else None


def _end_lost_trials(tx: Transaction, breaker: Row) -> None:
    """Count as failures the trials whose time is over, and those of turns that have ended. Bug: trials_kept."""
    for call in _calls(tx, breaker):
        if call["status"] != "trial" or "trials_kept" in tx.bugs:
            continue
        wait = tx.tables.waits.get((call["agent_turn_id"], call["call_id"]))
        if call["expires_at"] <= tx.now or (wait is not None and wait["state"] == "closed"):
            turn = tx.tables.turns.get(call["agent_turn_id"])
            if turn is not None and turn["outcome"] == "canceled":
                _delete(tx, call)
            else:
                ended_at = min(call["expires_at"], tx.now)
                tx.update(tx.tables.circuit_calls, call, status="failure", ended_at=ended_at)


def _trials_of(tx: Transaction, turn_id: str, call_id: str, mark: Row) -> list[Row]:
    return [
        c for c in _calls(tx, mark) if (c["agent_turn_id"], c["call_id"], c["status"]) == (turn_id, call_id, "trial")
    ]


def release_trials(tx: Transaction, turn_id: str, calls: list[Row]) -> None:
    for call in calls:
        if call.get("circuit") is not None:
            for trial in _trials_of(tx, turn_id, call["call_id"], call["circuit"]):
                _delete(tx, trial)


def admit_inline(tx: Transaction, items: list[Any], answers: list[Row], opened: set[int]) -> None:
    """Admit the new calls of begin_call, and those that begin again. opened: the places of calls that this transaction has opened."""
    rejections: dict[Any, Row] = {}
    for n, (item, answer) in enumerate(zip(items, answers, strict=True)):
        circuit, call = get(item, "circuit_breaker"), (answer["turn_id"], answer["call_id"])
        is_open = answer.get("code") == "CIRCUIT_OPEN"
        admitted = rejections.get(call) if answer["outcome"] != "stale" and not is_open else None
        if is_open:  # so are the later items of this call
            rejections[call] = dict(answer)
        elif admitted is None and isinstance(circuit, dict) and _is_to_admit(tx, item, answer, is_new=n in opened):
            admitted = admit_call(tx, *call, circuit, j.parse_float(get_text(item, "timeout_seconds")))
            if "outcome" not in admitted:
                tx.set(tx.tables.waits[call], circuit=admitted["circuit"])
                answer["circuit"] = admitted["circuit"]
            else:
                unopen(tx, call, is_new=n in opened)
                opened.discard(n)
                rejections[call] = admitted
        if admitted is not None and "outcome" in admitted:
            answer |= admitted  # noqa: PLW2901


def _is_to_admit(tx: Transaction, item: Any, answer: Row, *, is_new: bool) -> bool:
    return is_new or (answer["outcome"] == "again" and not _prolong_trial(tx, item, answer))


def unopen(tx: Transaction, call: Any, *, is_new: bool) -> None:
    if not is_new:
        tx.set(tx.tables.waits[call], circuit=None)
        return
    tx.delete(tx.tables.waits, call)


def _prolong_trial(tx: Transaction, item: Any, answer: Row) -> bool:
    circuit = item["circuit_breaker"]
    trials = _trials_of(tx, answer["turn_id"], answer["call_id"], _circuit_breaker(tx, circuit))
    for trial in trials:
        timeout = j.parse_float(get_text(item, "timeout_seconds"))
        tx.update(tx.tables.circuit_calls, trial, expires_at=_expiry(tx, circuit, timeout))
    return bool(trials)


def shift_trial(tx: Transaction, turn_id: str, call_id: str, mark: Row | None, start: int) -> None:
    for trial in _trials_of(tx, turn_id, call_id, mark) if mark is not None else ():
        tx.update(tx.tables.circuit_calls, trial, expires_at=trial["expires_at"] + max(start - tx.now, 0))


def has_circuits(items: list[Any]) -> bool:
    return any(
        get(call, "circuit_breaker") not in (None, ABSENT) for item in items for call in j.elements(get(item, "calls"))
    )


def admit_calls(tx: Transaction, item: Any) -> Row:
    """The item with the marks of its calls, or a rejection."""
    turn_id = str(get_text(item, "turn_id"))
    calls, circuits, rejected, rejection = list[Row](), dict[str, Row](), dict[str, Row](), None
    for call in j.elements(get(item, "calls")):
        call_id, circuit, admitted = str(get_text(call, "call_id")), get(call, "circuit_breaker"), {}
        if isinstance(circuit, dict) and (turn_id, call_id) not in tx.tables.waits:
            admitted = admit_call(tx, turn_id, call_id, circuit, j.parse_float(get_text(call, "timeout_seconds")))
        if "outcome" in admitted:
            rejection = rejection or admitted
            rejected[call_id] = {"message": admitted["message"], "circuit": admitted["circuit"]}
        else:
            calls.append({**call, **admitted})
            circuits |= {call_id: admitted["circuit"]} if admitted else {}
    if rejection is not None:
        release_trials(tx, turn_id, calls)
        return {**rejection, "calls": rejected}
    return {**item, "calls": calls, "circuits": circuits}


def count_circuits(tx: Transaction, results: list[Row]) -> None:
    """Count the results of calls that breakers have admitted. Bug: failures_forgotten.

    results: [{turn_id, call_id, status, circuit, is_recoverable}].
    """
    recovered = [result for result in results if not result["circuit"]["is_trial"] and result["status"] == "success"]
    earlier = [
        call for mark in {tuple(result["circuit"].values()): result["circuit"] for result in recovered}.values()
        for call in _calls(tx, mark) if call["status"] == "failure"
    ]  # fmt: skip
    for result in results:
        mark, verdict = result["circuit"], _verdict(result)
        if mark["is_trial"]:
            for trial in _trials_of(tx, result["turn_id"], result["call_id"], mark):
                if verdict is None:
                    _delete(tx, trial)
                else:
                    tx.update(tx.tables.circuit_calls, trial, status=verdict, ended_at=tx.now)
        elif verdict == "failure" and _is_current(tx, mark) and "failures_forgotten" not in tx.bugs:
            _insert_call(tx, mark, result["turn_id"], result["call_id"], "failure", ended_at=tx.now)
    for call in earlier:
        _delete(tx, call)


def _is_current(tx: Transaction, mark: Row) -> bool:
    return bool(mark["generation"] == _circuit_breaker(tx, mark)["generation"])


def _verdict(result: Row) -> str | None:
    status, is_trial = result["status"], result["circuit"]["is_trial"]
    if status == "success":
        return "success"
    is_failure = (
        status == "timeout" or (status == "failed" and result["is_recoverable"]) or (status == "unknown" and is_trial)
    )
    return "failure" if is_failure else None
