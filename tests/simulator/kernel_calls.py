"""Valid kernel calls, generated from a seed: the functions that every turn needs."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Any

AGENTS = ["one", "two", "three"]
_GATED = ("renew", "append", "release", "begin_call", "record_call", "suspend", "defer", "finish")


class Talk:
    """The calls and answers so far, to which later calls refer, and the dice."""

    def __init__(self, seed: int):
        self.dice = random.Random(seed)
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.runs: list[str] = []
        self.started: list[str] = []
        self.turns: list[str] = []
        self.messages: list[dict[str, Any]] = []  # sent requests, to send them again
        self.owned: list[dict[str, Any]] = []  # claimed turns, kept after their end too
        self.versions: dict[str, int] = {}
        self.outbox: list[str] = []

    def pass_time(self) -> None:
        step = self.dice.choice([0, 0, 0, 0, 1e-6, 0.1, 0.3, 1.0, 1.0, 7.0])
        self.now += timedelta(seconds=step if self.dice.random() < 0.95 else -0.5)

    def learn_from(self, function: str, args: tuple[Any, ...], answer: Any) -> None:
        self._forget(function, answer)
        if function == "start_runs":
            self.started += [row["run_id"] for row in answer if row["outcome"] == "started"]
        elif function == "finish_and_claim":
            items, *claim = args[1:]
            self.learn_from("finish", (args[0], items), answer["finished"])
            self.learn_from("claim", (args[0], *claim), answer["claimed"])
        elif function == "claim":
            self.owned += answer
            self.versions.update({row["run"]["run_id"]: row["run"]["version"] for row in answer})
        elif function in ("finish", "sweep_pending_reactions"):
            if function == "finish":
                self._count_versions(args[1], answer)
            views = [row["run"] for row in answer or () if row.get("run")]
            self.versions.update({view["run_id"]: view["version"] for view in views})
        elif function == "read_outbox":
            self.outbox += [row["key"] for row in answer]

    def _count_versions(self, items: list[dict[str, Any]], answer: list[dict[str, Any]]) -> None:
        for item, row in zip(items, answer, strict=True):
            if row["outcome"] == "ok":
                self.versions[item["agent_id"].partition("/")[0]] = item["version"] + 1

    def _forget(self, function: str, answer: Any) -> None:
        """Mostly forget turns that the caller no longer owns."""
        if function not in _GATED or self.dice.random() < 0.05:
            return
        for row in answer:
            if row["outcome"] in ("stale", "suspended", "deferred") or function in ("finish", "release"):
                self.owned = [turn for turn in self.owned if turn["turn_id"] != row.get("turn_id")]

    def token(self) -> dict[str, Any]:
        """Mostly the token of the last claims, so it is mostly valid."""
        if self.dice.random() < 0.02:
            return {}
        if not self.owned or self.dice.random() < 0.05:
            return {"agent_id": f"{self.run()}/one", "turn_id": self.known_turn(), "epoch": self.dice.randrange(4)}
        row = self.owned[-1 - min(len(self.owned) - 1, int(self.dice.expovariate(0.7)))]
        return {"agent_id": row["agent_id"], "turn_id": row["turn_id"], "epoch": row["epoch"]}

    def run(self) -> str:
        return self.dice.choice(self.started[-4:]) if self.started and self.dice.random() < 0.95 else "run_none"

    def known_turn(self) -> str:
        return self.dice.choice(self.turns[-8:]) if self.turns else "turn_0"

    def new_turn(self) -> str:
        turn_id = self.sometimes_old(f"turn_{len(self.turns)}", self.turns)
        self.turns.append(turn_id)
        return turn_id

    def sometimes_old(self, new: str, old: list[str]) -> str:
        return self.dice.choice(old) if old and self.dice.random() < 0.05 else new

    def mostly(self, likely: Any, other: Any, share: float = 0.9) -> Any:
        return likely if self.dice.random() < share else other


class TurnCalls(Talk):
    """Arguments that make sense, for the functions that every turn needs."""

    def start_runs(self) -> tuple[Any, ...]:
        items = []
        for _ in range(self.dice.choice([1, 1, 2, 3])):
            run_id = self.sometimes_old(f"run_{len(self.runs)}x{self.dice.randrange(100)}", self.runs)
            self.runs.append(run_id)
            signals = [{"name": "workflow:start", "payload": {"state": {"n": None}}}, *self._drafts(1)]
            reaction = {
                "state": {"n": None},
                "memory": {"joins": {}},
                "activations": self._activations(1),
            }
            items.append({
                "run_id": run_id, "target": self.dice.choice("ab"), "request_hash": self.dice.choice("hh."),
                "agents": AGENTS, "wakes_on_results": self.dice.random() < 0.5, "callback_url": self._url(), "signals": signals, "reaction": reaction,
                **({"fork": self._fork(reaction["activations"])} if self.dice.random() < 0.2 else {}),
            })  # fmt: skip
        return (items,)

    def _fork(self, activations: Any) -> dict[str, Any]:
        """Mostly a fork that can be made: most commits of these walks have one or two signals."""
        turns = [{"turn_id": each["turn_id"], "origin": self.mostly(self.token().get("turn_id"), self.known_turn(), 0.7)}
                 for each in activations]  # fmt: skip
        wrong: list[dict[str, Any]] = [
            {"seq": 0}, {"seq": "x"}, {"run_id": 1}, {"activations": -1}, {"turns": {}}, {"origin": "run_none"},
        ]  # fmt: skip
        return {
            "run_id": self.run(), "seq": self.dice.choice([1, 2, 2, 2, 3, 4, 5, 6, 9]), "activations": self.dice.randrange(3),
            "turns": self.mostly(turns, None, 0.7), "repeats_failed": self.dice.random() < 0.5,
            **self.mostly({}, self.dice.choice(wrong), 0.97),
        }  # fmt: skip

    def enqueue(self) -> tuple[Any, ...]:
        items = []
        for _ in range(self.dice.choice([1, 1, 3])):
            message = {
                "run_id": self.run(), "agent": self.dice.choice(AGENTS), "turn_id": self.new_turn(), "name": "user:message",
                "payload": {"n": self.dice.randrange(3)}, "priority": self.dice.randrange(4), "pool": self.pool(),
                "max_attempts": self.dice.choice([1, 2, 3]), "ttl_seconds": self.mostly(3600.25, self.dice.choice([0.5, 8.0])),
            }  # fmt: skip
            if self.dice.random() < 0.3:
                message |= self.dice.choice([
                    {"message_type": "ui_action"}, {"callback_url": self._url()}, {"callback_url": self._url()}, {"budget": self._amounts(20)}, {"parent_turn_id": self.token().get("turn_id")}, {"instance": "i"},
                    {"context_box_id": f"b{self.dice.randrange(5)}", "actor": "me"}, {"result_fields": [{"name": "f"}]},
                    {"payload": {"long": "x" * 300}}, {"cause": "sig_z_1"}, {"cause": f"sig_{self.run()}_{self.dice.randrange(4)}"},
                    {"name": self.dice.choice(["workflow:end", "A b", None, "halt"])}, {"turn_id": self.dice.choice(["a:b", "", "\x85"])},
                    {"result_fields": self.dice.choice([{"a": 1}, [{"name": 1}], [1]])}, {"message_type": "mail"}, {"ttl_seconds": "1"},
                ])  # fmt: skip
            self.messages.append(message)
            items.append(self.mostly(message, self.dice.choice(self.messages), 0.8))
        return (items,)

    def _url(self) -> Any:
        return self.dice.choice([None, None, "https://a.example/x", self.mostly("http://b.example", "gopher://c", 0.9)])

    def claim(self) -> tuple[Any, ...]:
        narrow = {"target": "a", "agents": ["one", "two"], "run_id": self.mostly(None, self.run(), 0.6)}
        a, b = {"target": "a"}, {"target": "b"}
        targets: list[Any] = self.dice.choice([[a], [b], [a, b], [a, b], [narrow, b, b], []])
        if targets and self.dice.random() < 0.5:
            targets = [*targets, a | {"pool": "far"}, b | {"pool": "far"}]
        return targets, f"w{self.dice.randrange(3)}", self.dice.choice([1, 2, 10]), self.dice.choice([0.5, 30.0, 30.0])

    def fail_unclaimable(self) -> tuple[Any, ...]:
        return ([{"target": name} for name in self.dice.choice(["a", "ab"])],)

    def renew(self) -> tuple[Any, ...]:
        phase = self.dice.choice(["init", "act", None])  # the same for all: which of two comes last is not defined
        return [{**self.token(), "phase": phase} for _ in range(self.dice.choice([1, 2]))], 2.0

    def release(self) -> tuple[Any, ...]:
        return ([self.token() for _ in range(self.dice.choice([1, 1, 2]))],)

    def append(self) -> tuple[Any, ...]:
        return ([{**self.token(), "phase": self.mostly(self.dice.choice(["act", "plan"]), "dance", 0.98), **self._drafts_of_owner()}
                 for _ in range(self.dice.choice([1, 1, 2]))],)  # fmt: skip

    def finish(self) -> tuple[Any, ...]:
        items = []
        for _ in range(self.dice.choice([1, 1, 1, 2, 4])):
            token = self.token()
            run_id = str(token.get("agent_id")).partition("/")[0]
            content = self.dice.choice(
                [
                    {"text": "done"},
                    {"fields": [{"name": "f", "value": 1}]},
                    {"text": "x" * 500},
                    {"text": "", "$blob": "b"},
                    *self.mostly([], [{"text": 1}, None], 0.95),
                ]
            )
            items.append({**token, "outcome": self.mostly("success", "failed"), "content": content,
                          **self._reaction(run_id)})  # fmt: skip
        if len(items) > 1 and self.dice.random() < 0.5:
            self._follow(items)
        return (items,)

    def _follow(self, items: list[dict[str, Any]]) -> None:
        """Let endings of one run follow each other, mostly the one before."""
        counts = Counter(turn["run_id"] for turn in self.owned)
        [(run_id, _)] = counts.most_common(1) or [("", 0)]
        owned = [turn for turn in self.owned if turn["run_id"] == run_id]
        for n, (item, turn) in enumerate(zip_longest(items, owned[: len(items)])):
            if turn is not None:
                item |= {key: turn[key] for key in ("agent_id", "turn_id", "epoch")}
            item["version"] = self.versions.get(run_id, 1) + n
            if n > 0:
                item["follows"] = self.mostly(items[n - 1].get("turn_id"), self.dice.choice([None, "turn_x"]), 0.95)
            if self.dice.random() < 0.8:
                item["reaction"] |= {"memory": {"n": self.dice.random()}, "activations": []}

    def finish_and_claim(self) -> tuple[Any, ...]:
        return (*self.finish(), *self.claim())

    def start_and_claim(self) -> tuple[Any, ...]:
        return (*self.start_runs(), *self.claim())

    def react(self) -> tuple[Any, ...]:
        run_id = self.run()
        return ([{"run_id": run_id, **self._reaction(run_id)}],)

    def sweep(self) -> tuple[Any, ...]:
        return (self.dice.choice([1, 2, 100, None]),)

    sweep_leases = sweep_expired = sweep_queued = sweep

    def sweep_bells(self) -> tuple[Any, ...]:
        return (self.dice.choice([0.0, 1.5, -1.0]),)

    def sweep_pending_reactions(self) -> tuple[Any, ...]:
        return self.dice.choice([["a"], ["a", "b"]]), self.dice.choice([1, 20])

    def declare_wire(self) -> tuple[Any, ...]:
        return (self.mostly("nats", ""),)

    def read_outbox(self) -> tuple[Any, ...]:
        return (self.dice.choice([0, 2, 100]),)

    def mark_published(self) -> tuple[Any, ...]:
        return ([*self.outbox[-self.dice.randrange(1, 5) :], "nothing"],)

    def set_limits(self) -> tuple[Any, ...]:
        """Mostly one that can be felt, mostly lifted again."""
        limit, value = self.dice.choice([
            ("queue_max", 2), ("depth_max", 0), ("fan_out_max", 1), ("cards_max", 2), ("waits_max", 2),
            ("payload_bytes_max", 200), ("card_bytes_max", 300), ("result_bytes_max", 250), ("blob_bytes_max", 400),
            ("running_max", 2), ("deferrals_max", 1), ("running_max", 0), ("none", 1),
            ("memories_max", 2), ("dispatch_seconds_max", 5), ("dispatch_seconds_max", 31_622_401), ("memory_bytes_max", 100), ("memory_bytes_max", 300_000),
        ])  # fmt: skip
        lifted = dict.fromkeys(("queue_max", "running_max", "waits_max", "payload_bytes_max", "blob_bytes_max"))
        return (self.mostly({limit: value}, {}, 0.4) | self.mostly({}, lifted, 0.3),)

    def _drafts_of_owner(self) -> dict[str, Any]:
        drafts = self._drafts(self.dice.randrange(3))
        for draft in drafts:
            draft["is_pending"] = self.dice.random() < 0.5
        cards = [
            {
                "card_id": f"card_{self.dice.randrange(30)}",
                "kind": "note",
                "content": self.mostly(None, self.dice.choice(["x" * 500, {"$blob": "b"}, ["$blob"]]), 0.6),
            }
        ]
        return {
            "signals_emitted": self.dice.choice([0, 0, 1, 2]),
            "cards": cards[self.dice.randrange(2) :],
            "signals": drafts,
        }

    def _reaction(self, run_id: str) -> dict[str, Any]:
        drafts = self._drafts(self.dice.randrange(1, 3))
        reaction: dict[str, Any] = {"activations": self._activations(len(drafts) - 1)}
        if self.dice.random() < 0.3:
            reaction |= {"state": {"n": self.dice.random()}, "memory": {}}
        if self.dice.random() < 0.1:
            reaction |= {"status": "ended", "outcome": "success"}
        return {"version": self.versions.get(run_id, 1), "signals": drafts, "reaction": reaction}

    def _drafts(self, count: int) -> list[dict[str, Any]]:
        at = self.dice.choice([None, "2026-01-01T00:00:00.5+00:00"])
        payloads: list[Any] = [None, 1.5, {"b": [], "a": "é"}, {"long": "x" * 300}]
        return [{"name": f"say:{n}", "payload": self.dice.choice(payloads), "agent": "one",
                 "parent": n - 1 if n else "sig_0_1", "at": at} for n in range(count)]  # fmt: skip

    def pool(self) -> Any:
        return self.mostly(None, "far")

    def _amounts(self, size: int = 8) -> dict[str, Any] | None:
        """Amounts of a budget, or of a reservation."""
        if self.dice.random() < 0.4:
            return None
        return {kind: self.dice.randrange(size) for kind in self.dice.sample(("tokens", "micros", "tool_calls"), 2)}

    def _activations(self, index: int) -> list[dict[str, Any]]:
        return [{"agent": self.dice.choice(AGENTS), "turn_id": self.new_turn(), "cause": self.dice.choice([0, {"seq": 1}]),
                 "activation": index, "priority": self.dice.randrange(4), "pool": self.pool(), "max_attempts": self.dice.choice([1, 3]),
                 "ttl_seconds": self.mostly(600.0, 1.25), "budget": self._amounts(30)} for _ in range(self.dice.choice([0, 1, 2]))]  # fmt: skip
