"""The recorded entries of one part, as a replay reads them.

A value is returned to the code that reads it. An answer is given as soon as all entries before it have happened again. So tasks
of a turn that ran at the same time continue in the order in which they did. Two answers may arrive at the same moment. The
recording does not contain how far the task of the first ran before the second. A patient script lets it run as far as it can.
In either, the first task continues before the second: an answer that nobody awaits yet lets those before it arrive first.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

from heliograph.execution.tape import ANSWERS, VALUES

Key = tuple[Any, ...]
_PASSES_MAX = 20  # of the event loop: how long an answer waits for those before it, whose tasks may have been cancelled


class Missing(Exception):
    """The recording has no entry for what the code does now."""


class Script:
    """The entries of one part. is_over: all of them have happened again."""

    def __init__(self, entries: Sequence[Sequence[Any]], *, is_patient: bool = False):
        self._entries = entries
        self._is_patient = is_patient
        self._at = 0
        self._done = [False] * len(entries)
        self._values: dict[str, deque[int]] = defaultdict(deque)
        self._calls: dict[Key, deque[int]] = defaultdict(deque)
        for place, entry in enumerate(entries):
            if entry[0] in VALUES:
                self._values[entry[0]].append(place)
            elif entry[0] not in ANSWERS:
                self._calls[key_of(entry)].append(place)
        self._mail: dict[int, deque[Sequence[Any]]] = defaultdict(deque)
        self._given: dict[int, None] = {}  # the answers that no task has received yet, by identity, in their order
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self.on_timeout: Callable[[int], None] = lambda number: None
        self.on_stop: Callable[[str], None] = lambda reason: None
        self.on_progress: Callable[[Any, str], None] = lambda payload, at: None

    @property
    def is_over(self) -> bool:
        return self._at == len(self._entries)

    @property
    def next_entry(self) -> Sequence[Any] | None:
        return None if self.is_over else self._entries[self._at]

    def value(self, kind: str) -> Sequence[Any]:
        """Return the next value of a kind. Raises Missing."""
        places = self._values[kind]
        if not places:
            raise Missing(kind)
        return self._happened(places.popleft())

    def has_values(self, kind: str) -> bool:
        """Return whether the script has further values of a kind."""
        return bool(self._values[kind])

    def next_call(self, key: Key) -> Sequence[Any] | None:
        """Return the entry of the next call with a key, which has not happened yet; None if there is none."""
        places = self._calls[key]
        return self._entries[places[0]] if places else None

    def call(self, key: Key) -> Sequence[Any]:
        """Return the entry of a call that begins now. Raises Missing."""
        places = self._calls[key]
        if not places:
            raise Missing(key)
        return self._happened(places.popleft())

    def sleep(self, seconds: float) -> Sequence[Any]:
        """Return the entry of a pause that begins now: the next one of this length, or else the next one. Raises Missing.

        Tasks of a turn that run at the same time begin theirs in any order.
        """
        places = self._calls["sleep",]
        if not places:
            raise Missing("sleep")
        place = next((each for each in places if self._entries[each][2] == seconds), places[0])
        places.remove(place)
        return self._happened(place)

    async def answer(self, number: int) -> Sequence[Any]:
        """Wait until the next answer to a call is due, and return it."""
        mail = self._mail[number]
        while not mail:
            waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
            await waiting
        entry = mail.popleft()
        place = id(entry)
        for _ in range(_PASSES_MAX):
            if place not in self._given or next(iter(self._given)) == place:
                break
            await asyncio.sleep(0)
        while place in self._given:
            del self._given[next(iter(self._given))]
        return entry

    def advance(self) -> bool:
        """Give the answers that are due, a patient script only the first; return whether there was one."""
        has_given = False
        while not self.is_over:
            entry = self._entries[self._at]
            if entry[0] in ANSWERS:
                self._at += 1
                self._give(entry)
                has_given = True
                if self._is_patient:
                    break
            elif self._done[self._at]:
                self._at += 1
            else:
                break
        return has_given

    def skip_value(self) -> bool:
        """Pass over a value that the code did not read again; return whether one was next."""
        entry = self.next_entry
        if entry is None or entry[0] not in VALUES:
            return False
        self._values[entry[0]].remove(self._at)
        self._done[self._at] = True
        return True

    def _happened(self, place: int) -> Sequence[Any]:
        self._done[place] = True
        if not self._is_patient:
            self.advance()
        return self._entries[place]

    def _give(self, entry: Sequence[Any]) -> None:
        if entry[0] == "timeout":
            self.on_timeout(entry[1])
        elif entry[0] == "stop":
            self.on_stop(entry[1])
        elif entry[0] == "progress":
            self.on_progress(entry[1], entry[2])
        else:
            self._given[id(entry)] = None
            self._mail[entry[1]].append(entry)
            waiting = self._waiting.pop(entry[1], None)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)


def key_of(entry: Sequence[Any]) -> Key:
    """Return the key that identifies a call among those of its part."""
    if entry[0] == "call":
        return key_of_call(entry[2], entry[3])
    return ("step", entry[2]) if entry[0] == "step" else (entry[0],)


def key_of_call(function: str, item: Any) -> Key:
    """The key of a kernel call: steps of one turn that run at the same time make theirs in any order."""
    call_id = item.get("call_id") if isinstance(item, dict) else None
    return "call", function, None if call_id is None else str(call_id)  # of a file that was edited, it may be anything
