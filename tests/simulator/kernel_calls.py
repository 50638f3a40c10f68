"""Sequences of kernel calls that make sense, and calls that make none: what both kernels are asked alike."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

AGENTS = ["one", "two", "three"]
# What a caller may send by mistake, wherever it fits into JSON. Whole floats are left out: 3.0 is an integer to the
# twin and text to a cast in SQL; nothing that the runtime sends has one there.
JUNK: list[Any] = [None, "", "x", "7", -1, 0, 3, 10**12, 0.25, True, [], {}, [1], {"seq": 1}, "é\u2028", "a\u0000b"]


class Caller:
    """Makes up calls from one seed. `heard` reads each answer, so that later calls may refer to it."""

    def __init__(self, seed: int):
        self.dice = random.Random(seed)
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.runs: list[str] = []
        self.turns: list[str] = []
        self.items: list[dict[str, Any]] = []  # what was sent, to be sent again
        self.held: list[dict[str, Any]] = []  # claimed turns, kept after their end too
        self.versions: dict[str, int] = {}
        self.outbox: list[int] = []

    def calls(self, count: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
        weights = {"start_runs": 2, "enqueue": 4, "claim": 6, "renew": 2, "append": 4, "finish": 8, "react": 3,
                   "sweep_leases": 2, "sweep_expired": 2, "sweep_queued": 1, "sweep_bells": 1, "sweep_owed": 3,
                   "read_outbox": 1, "mark_published": 1}  # fmt: skip
        for _ in range(count):
            step = self.dice.choice([0, 0, 1e-6, 0.3, 1.0, 7.0])
            self.now += timedelta(seconds=step if self.dice.random() < 0.95 else -0.5)
            [function] = self.dice.choices(list(weights), weights=list(weights.values()))
            args = getattr(self, f"_{function}")()
            # two are left out: PostgreSQL does not look at their lists where there is nothing to compare with them
            if self.dice.random() < 0.25 and function not in ("mark_published", "sweep_owed"):
                args = self._spoil(args)
            yield function, ("p", *args)

    def heard(self, function: str, args: tuple[Any, ...], answer: Any) -> None:
        if function == "claim":
            self.held += answer
            self.versions.update({row["run"]["run_id"]: row["run"]["version"] for row in answer})
        elif function == "finish":
            self.versions.update({row["run"]["run_id"]: row["run"]["version"] for row in answer if row.get("run")})
        elif function == "sweep_owed":
            self.versions.update({row["run"]["run_id"]: row["run"]["version"] for row in answer})
        elif function == "read_outbox":
            self.outbox += [row["outbox_id"] for row in answer]

    # ---- arguments that make sense ----

    def _start_runs(self) -> tuple[Any, ...]:
        items = []
        for _ in range(self.dice.choice([1, 1, 2])):
            run_id = self._sometimes_old(f"run_{len(self.runs)}x{self.dice.randrange(100)}", self.runs)
            self.runs.append(run_id)
            signals = [{"name": "workflow:start", "payload": {"state": {"n": None}}}, *self._drafts(1)]
            reaction = {
                "version": 0,
                "state": {"n": None},
                "memory": {"joins": {}},
                "activations": self._activations(1),
            }
            items.append({"run_id": run_id, "target": self.dice.choice("ab"), "request_hash": self.dice.choice("hh."),
                          "agents": AGENTS, "signals": signals, "reaction": reaction})  # fmt: skip
        return (items,)

    def _enqueue(self) -> tuple[Any, ...]:
        items = []
        for _ in range(self.dice.choice([1, 1, 3])):
            message = {
                "run_id": self._run(), "agent": self.dice.choice(AGENTS), "turn_id": self._turn(), "name": "user:message",
                "payload": {"n": self.dice.randrange(3)}, "priority": self.dice.randrange(4),
                "max_attempts": self.dice.choice([1, 2, 3]), "ttl_seconds": self.dice.choice([0.5, 8.0, 3600.25]),
            }  # fmt: skip
            self.items.append(message)
            items.append(message if self.dice.random() < 0.8 else self.dice.choice(self.items))
        return (items,)

    def _claim(self) -> tuple[Any, ...]:
        targets = self.dice.choice([["a"], ["b"], ["a", "b"], []])
        return targets, f"w{self.dice.randrange(3)}", self.dice.choice([1, 2, 10]), self.dice.choice([0.5, 2.0, 30.0])

    def _renew(self) -> tuple[Any, ...]:
        phase = self.dice.choice(["init", "act", None])  # the same for all: which of two comes last is not defined
        return [{**self._token(), "phase": phase} for _ in range(self.dice.choice([1, 2]))], 2.0

    def _append(self) -> tuple[Any, ...]:
        drafts = self._drafts(self.dice.randrange(3))
        for draft in drafts:
            draft["owed"] = self.dice.random() < 0.5
        cards = [{"card_id": f"card_{self.dice.randrange(30)}", "kind": "note", "content": None}]
        return ([{**self._token(), "phase": self.dice.choice(["act", "plan"]), "said": self.dice.choice([0, 0, 1, 2]),
                  "cards": cards[self.dice.randrange(2) :], "signals": drafts}],)  # fmt: skip

    def _finish(self) -> tuple[Any, ...]:
        items = []
        for _ in range(self.dice.choice([1, 1, 1, 2])):
            token = self._token()
            run_id = str(token["agent_id"]).partition("/")[0]
            items.append({**token, "outcome": self.dice.choice(["success", "failed"]), "content": {"text": "done"},
                          "card_id": f"card_{token['turn_id']}_{token['epoch']}", **self._reaction(run_id)})  # fmt: skip
        return (items,)

    def _react(self) -> tuple[Any, ...]:
        run_id = self._run()
        return ([{"run_id": run_id, **self._reaction(run_id)}],)

    def _sweep_leases(self) -> tuple[Any, ...]:
        return (self.dice.choice([1, 100]),)

    _sweep_expired = _sweep_queued = _sweep_leases

    def _read_outbox(self) -> tuple[Any, ...]:
        return (self.dice.choice([0, 2, 100]),)

    def _sweep_bells(self) -> tuple[Any, ...]:
        return (self.dice.choice([0.0, 1.5, -1.0]),)

    def _sweep_owed(self) -> tuple[Any, ...]:
        return self.dice.choice([["a"], ["a", "b"]]), self.dice.choice([1, 20])

    def _mark_published(self) -> tuple[Any, ...]:
        return ([*self.outbox[: self.dice.randrange(3)], 999],)

    def _reaction(self, run_id: str) -> dict[str, Any]:
        drafts = self._drafts(self.dice.randrange(1, 3))
        reaction: dict[str, Any] = {
            "version": self.versions.get(run_id, 1),
            "activations": self._activations(len(drafts) - 1),
        }
        if self.dice.random() < 0.3:
            reaction |= {"state": {"n": self.dice.random()}, "memory": {}}
        if self.dice.random() < 0.1:
            reaction |= {"status": "ended", "outcome": "success"}
        return {"signals": drafts, "reaction": reaction}

    def _drafts(self, count: int) -> list[dict[str, Any]]:
        at = self.dice.choice([None, "2026-01-01T00:00:00.5+00:00"])
        return [{"name": f"say:{n}", "payload": self.dice.choice([None, 1.5, {"b": [], "a": "é"}]), "agent": "one",
                 "parent": n - 1 if n else "sig_0_1", "at": at} for n in range(count)]  # fmt: skip

    def _activations(self, index: int) -> list[dict[str, Any]]:
        return [{"agent": self.dice.choice(AGENTS), "turn_id": self._turn(), "cause": self.dice.choice([0, {"seq": 1}]),
                 "activation": index, "priority": self.dice.randrange(4), "max_attempts": self.dice.choice([1, 3]),
                 "ttl_seconds": self.dice.choice([1.25, 600.0])} for _ in range(self.dice.choice([0, 1, 2]))]  # fmt: skip

    def _token(self) -> dict[str, Any]:
        """Mostly of what was claimed last, so that it is mostly valid."""
        if not self.held or self.dice.random() < 0.05:
            return {"agent_id": f"{self._run()}/one", "turn_id": "turn_0", "epoch": self.dice.randrange(4)}
        row = self.held[-1 - min(len(self.held) - 1, int(self.dice.expovariate(0.7)))]
        return {"agent_id": row["agent_id"], "turn_id": row["turn_id"], "epoch": row["epoch"]}

    def _run(self) -> str:
        return self.dice.choice([*self.runs[-4:], "run_none"]) if self.runs else "run_none"

    def _turn(self) -> str:
        turn_id = self._sometimes_old(f"turn_{len(self.turns)}", self.turns)
        self.turns.append(turn_id)
        return turn_id

    def _sometimes_old(self, new: str, old: list[str]) -> str:
        return self.dice.choice(old) if old and self.dice.random() < 0.05 else new

    # ---- arguments that make none ----

    def _spoil(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """One value somewhere in the JSON becomes junk, or goes missing."""
        spoiled = list(copy.deepcopy(args))
        places = [(spoiled, n) for n, arg in enumerate(spoiled) if isinstance(arg, list)]
        places += [place for arg in spoiled for place in _places(arg)]
        if not places:
            return args
        container, key = self.dice.choice(places)
        if isinstance(container, dict) and self.dice.random() < 0.3:
            del container[key]
        else:
            container[key] = self.dice.choice(JUNK)
        return tuple(spoiled)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])
