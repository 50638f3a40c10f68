"""Take tokens for calls with rate limits in memory, like 15_rate_limits.sql, under the same names.

Here one call runs at a time, so buckets need no locks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.budgets import settle
from heliograph.testing.kernel.circuit_breakers import release_trials, shift_trial, unopen
from heliograph.testing.kernel.jsonb import ABSENT, SqlError, get, get_text
from heliograph.testing.kernel.limits import rejection
from heliograph.testing.kernel.tables import Row, interval, microseconds_of, timestamp
from heliograph.testing.kernel.transaction import Transaction

_KINDS = ("tool", "agent", "model", "model_tokens", "route")
_LIMITS = {"amount": 1_000_000_000, "count": 1_000_000_000, "seconds": 3600}
_WAIT_SECONDS_MAX = 3600.0
_DAY_NS = 86_400_000_000_000
_BACK_MIN = -(10**17)  # three years
_FULL_AT_MAX = 7_258_118_400 * 10**9  # the year 2200
_DISTANCE_MAX = 8 * 10**18
_NOTHING = {"tokens": 0, "micros": 0, "model_calls": 0, "tool_calls": 0}


@dataclass(frozen=True, slots=True)
class _Rate:
    kind: str
    name: str
    count: int
    seconds: int
    amount: int
    interval_ns: int


def wrong_rates(path: str, rates: Any) -> str | None:
    if rates is None or rates is ABSENT:
        return None
    if not isinstance(rates, list) or len(rates) > 8:
        return f"{path} must be an array of at most 8 rates"
    wrong = [found for rate in rates if (found := _wrong_rate(path, rate)) is not None]
    if wrong:
        return min(wrong)
    is_double = len({(rate["kind"], rate["name"]) for rate in rates}) < len(rates)
    return f"{path} names a bucket twice" if is_double else None


def _wrong_rate(path: str, rate: Any) -> str | None:
    if not isinstance(rate, dict):
        return f"{path}[] must be an object"
    name = rate.get("name")
    if get_text(rate, "kind") not in _KINDS:
        return f"{path}[].kind must be tool, agent, model, model_tokens or route"
    if not isinstance(name, str) or not 1 <= len(name.encode()) <= 200:
        return f"{path}[].name must have 1 to 200 bytes"
    for key, most in _LIMITS.items():
        if not _is_whole(rate.get(key), 1, most):
            return f"{path}[].{key} must be a whole number from 1 to {most}"
    return None


def _is_whole(value: Any, least: int, most: int) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and least <= value <= most and not value % 1


def check_rates(path: str, rates: Any) -> None:
    if (wrong := wrong_rates(path, rates)) is not None:
        raise SqlError("22023", wrong)


def check_rate_tokens(items: list[Any]) -> None:
    for item in items:
        given = get(item, "rate_tokens")
        if given is not None and given is not ABSENT and not _is_whole(given, 0, 1_000_000_000):
            raise SqlError("22023", "p_items[].rate_tokens must be a whole number from 0 to 1000000000")


def _rates(rates: Any) -> list[_Rate]:
    return [
        _Rate(r["kind"], r["name"], int(r["count"]), int(r["seconds"]), int(r["amount"]),
              -(-int(r["seconds"]) * 1_000_000_000 // int(r["count"])))
        for r in (rates if isinstance(rates, list) else ())
    ]  # fmt: skip


def _given(items: list[Any]) -> list[Any]:
    """The rates of these items, of begin_call or of suspend."""
    places = [*items, *(call for item in items for call in j.elements(get(item, "calls")))]
    return [rate for place in places if isinstance(rates := get(place, "rates"), list) for rate in rates]


def open_rates(tx: Transaction, items: list[Any]) -> None:
    """`_lock_rates`: create the buckets that have no row."""
    rates, table = _rates(_given(items)), tx.tables.rate_buckets
    for key in sorted({(rate.kind, rate.name) for rate in rates} - table.keys()):
        same = [rate for rate in rates if (rate.kind, rate.name) == key]
        tx.insert(table, key, {
            "kind": key[0], "name": key[1], "tokens_max": min(rate.count for rate in same),
            "seconds": min(rate.seconds for rate in same), "full_at": 0, "last_start": 0, "last_day": 0, "peaks": [],
        })  # fmt: skip


def _reject_rate(rate: _Rate, timeout: float | None, wait: int | None, retry: int | None) -> Row:
    """Reject a call by a bucket. timeout: of the call, in seconds. wait, retry: in microseconds."""
    limit = f"the rate limit of {rate.kind} {rate.name} is {rate.count} in {rate.seconds} s"
    if wait is None:
        message = f"the call needs {rate.amount} tokens, and {limit}: raise the limit"
    else:
        too_long = (
            "the hour that a call without a timeout waits: make fewer calls, raise the limit, or set a longer timeout"
            if timeout is None
            else "its timeout: make fewer calls, or raise the limit or the timeout"
        )
        message = f"{limit}, and the call would wait {math.ceil(wait / 1_000_000)} s, longer than {too_long}"
    named = {"kind": rate.kind, "name": rate.name, "count": rate.count, "seconds": rate.seconds, "amount": rate.amount}
    seconds = None if retry is None else retry / 1_000_000
    return {**rejection("RATE_LIMITED", message), "rate": {**named, "retry_seconds": seconds}}


def take_tokens(tx: Transaction, given: list[Any], timeout: float | None) -> Row:
    """Give a call its start, and take its tokens, or reject it. Returns {rate} or a rejection. Bug: rate_ignored."""
    now, rates, table = tx.now * 1000, _rates(given), tx.tables.rate_buckets
    last = (tx.now + interval(_WAIT_SECONDS_MAX if timeout is None else timeout)) * 1000
    starts = [(_start(table[rate.kind, rate.name], rate, now), rate) for rate in rates]
    never = [rate for start, rate in starts if start is None]
    if never:
        return _reject_rate(min(never, key=lambda rate: (rate.kind, rate.name)), timeout, None, None)
    start, latest = min(
        ((s, r) for s, r in starts if s is not None), key=lambda each: (-each[0], each[1].kind, each[1].name)
    )
    if "rate_ignored" in tx.bugs:
        start = now
    if start > last:
        return _reject_rate(latest, timeout, (start - now) // 1000, (start - last) // 1000)
    for rate in rates:
        _take(tx, table[rate.kind, rate.name], rate, start)
    return {"rate": {"starts_at": timestamp(start // 1000), "rates": given}}


def _start(bucket: Row, rate: _Rate, now: int) -> int | None:
    if rate.amount > rate.count:
        return None
    free_at = max(now, _full_at(bucket, rate, now) + (rate.amount - rate.count) * rate.interval_ns)
    return int(-(-free_at // 1000) * 1000)


def _refill_ns(bucket: Row) -> int:
    return int(-(-bucket["seconds"] * 1_000_000_000 // bucket["tokens_max"]))


def _empty_ns(bucket: Row, rate: _Rate) -> int | None:
    """How far from full the bucket is at most, because the limit of the last call was another one."""
    is_same = (bucket["tokens_max"], bucket["seconds"]) == (rate.count, rate.seconds)
    return None if is_same else rate.count * rate.interval_ns


def _full_at(bucket: Row, rate: _Rate, now: int) -> int:
    full_at, empty = int(bucket["full_at"]), _empty_ns(bucket, rate)
    return full_at if empty is None else min(full_at, max(bucket["last_start"], now) + empty)


def _take(tx: Transaction, bucket: Row, rate: _Rate, start: int) -> None:
    """Bug: tokens_free."""
    length, full_at, peaks = rate.amount * rate.interval_ns, _full_at(bucket, rate, tx.now * 1000), []
    if rate.kind == "model_tokens":
        empty = _empty_ns(bucket, rate)
        earlier = [[at, distance if empty is None else min(distance, empty)] for at, distance in bucket["peaks"]]
        peaks = _peaks(earlier, start, length, (start, max(full_at - start, 0)))
    tx.update(tx.tables.rate_buckets, bucket, tokens_max=rate.count, seconds=rate.seconds, peaks=peaks,
              last_start=max(bucket["last_start"], start), last_day=max(bucket["last_start"], start) // _DAY_NS,
              full_at=max(full_at, start) + (0 if "tokens_free" in tx.bugs else length))  # fmt: skip


def _peaks(peaks: list[Any], after: int, change: int, new: tuple[int, int] | None = None) -> list[list[int]]:
    moved = [(at, min(distance + (change if at > after else 0), _DISTANCE_MAX)) for at, distance in peaks]
    kept, least = list[list[int]](), math.inf
    for at, distance in sorted([*moved, *([] if new is None else [new])], key=lambda peak: (-peak[0], peak[1])):
        if distance < least:
            kept.append([at, distance])
            least = distance
    if len(kept) > 100:
        kept[99][1] = kept[-1][1]
    return kept[99::-1] if len(kept) > 100 else kept[::-1]


def _answer(tx: Transaction, rate: Row) -> Row:
    starts_at = microseconds_of(rate["starts_at"])
    return {"rate": {"starts_at": rate["starts_at"], "wait_seconds": max(starts_at - tx.now, 0) / 1_000_000}}


def has_started(tx: Transaction, wait: Row, item: Any) -> bool:
    """Whether the owner of a call that waits for its start may begin its effect now."""
    rate = wait["rate"]
    return (
        rate is not None
        and "is_waiting" in rate
        and (not has_rates(item) or microseconds_of(rate["starts_at"]) <= tx.now)
    )


def take_inline(tx: Transaction, items: list[Any], answers: list[Row], opened: set[int]) -> None:
    """Take the tokens of the calls that begin_call admits. opened: the places of calls that this transaction has opened."""
    rejections: dict[Any, Row] = {}
    for n, (item, answer) in enumerate(zip(items, answers, strict=True)):
        rates, call = get(item, "rates"), (answer["turn_id"], answer["call_id"])
        taken = rejections.get(call) if answer["outcome"] != "stale" else None
        if taken is None and isinstance(rates, list) and rates and answer["outcome"] in ("fresh", "again"):
            if n in opened or answer["outcome"] == "again":
                taken = take_tokens(tx, rates, j.parse_float(get_text(item, "timeout_seconds")))
                if "outcome" not in taken:
                    waiting = {"is_waiting": True} if microseconds_of(taken["rate"]["starts_at"]) > tx.now else {}
                    tx.set(tx.tables.waits[call], rate={**taken["rate"], **waiting})
                    shift_trial(
                        tx, *call, tx.tables.waits[call]["circuit"], microseconds_of(taken["rate"]["starts_at"])
                    )
            elif (known := tx.tables.waits[call]["rate"]) is not None:
                taken = {"rate": known}
            if taken is not None and "outcome" in taken:
                _unbegin(tx, call, is_new=n in opened)
                rejections[call] = taken
            elif taken is not None:
                taken = _answer(tx, taken["rate"])
        if taken is not None and "outcome" in taken:
            answer.pop("circuit", None)
        answer |= taken or {}  # noqa: PLW2901


def _unbegin(tx: Transaction, call: Any, *, is_new: bool) -> None:
    wait = tx.tables.waits[call]
    if wait["reserved"] is not None:
        settle(tx, call, _NOTHING)
        tx.set(wait, reserved={})
    release_trials(tx, call[0], [{"call_id": call[1], "circuit": wait["circuit"]}])
    unopen(tx, call, is_new=is_new)


def has_rates(call_or_item: Any) -> bool:
    return bool(_given([call_or_item]))


def take_calls(tx: Transaction, item: Any) -> Row:
    """The item with the rates of its calls, or a rejection."""
    table, turn_id = tx.tables.rate_buckets, str(get_text(item, "turn_id"))
    before = {key: dict(table[key]) for key in {(rate.kind, rate.name) for rate in _rates(_given([item]))}}
    calls, rejected, rejection_of = list[Row](), dict[str, Row](), None
    for call in j.elements(get(item, "calls")):
        taken: Row = {}
        if has_rates(call) and (turn_id, get_text(call, "call_id")) not in tx.tables.waits:
            taken = take_tokens(tx, call["rates"], j.parse_float(get_text(call, "timeout_seconds")))
        if "outcome" in taken:
            rejection_of = rejection_of or taken
            rejected[str(get_text(call, "call_id"))] = {"message": taken["message"], "rate": taken["rate"]}
        else:
            calls.append({**call, **taken})
            if taken and get_text(call, "timeout_seconds") is None:
                shift_trial(tx, turn_id, str(get_text(call, "call_id")), call.get("circuit"),
                               microseconds_of(taken["rate"]["starts_at"]))  # fmt: skip
    if rejection_of is None:
        return {**item, "calls": calls}
    for key, row in before.items():
        tx.update(table, table[key], **row)
    release_trials(tx, turn_id, j.elements(get(item, "calls")))
    return {**rejection_of, "calls": rejected}


def correct_tokens(tx: Transaction, item: Any) -> None:
    used, now = get(item, "rate_tokens"), tx.now * 1000
    wait = tx.tables.waits.get((get_text(item, "turn_id"), get_text(item, "call_id")))
    if used is None or used is ABSENT or wait is None or wait["rate"] is None:
        return
    for rate in _rates(wait["rate"]["rates"]):
        if rate.kind != "model_tokens":
            continue
        bucket = tx.tables.rate_buckets[rate.kind, rate.name]
        start = microseconds_of(wait["rate"]["starts_at"]) * 1000
        later = [distance for at, distance in bucket["peaks"] if at > start]
        refill = _refill_ns(bucket) if rate.amount <= int(used) else min(rate.interval_ns, _refill_ns(bucket))
        back = max(min([(rate.amount - int(used)) * refill, *later]), _BACK_MIN)
        full_at = max(0, min((max(bucket["full_at"], now) if back < 0 else bucket["full_at"]) - back, _FULL_AT_MAX))
        tx.update(tx.tables.rate_buckets, bucket, full_at=full_at, peaks=_peaks(bucket["peaks"], start, -back))
