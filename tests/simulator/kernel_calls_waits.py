"""Valid kernel calls, generated from a seed: waits of turns, reports, stops and sweeps."""

from __future__ import annotations

from typing import Any

from tests.simulator.kernel_calls import AGENTS, TurnCalls

_STATUSES = ("success", "failed", "timeout", "unknown", "canceled")
_OWNER = {"agent_id", "turn_id", "epoch"}
_EFFECTS = ("pure", "idempotent", "transactional", "once")


class WaitCalls(TurnCalls):
    """Call ids are few, so that one call meets another: early, again, late, of another kind."""

    def __init__(self, seed: int):
        super().__init__(seed)
        self.suspended_calls: list[tuple[str, str, str | None]] = []  # turn, call, token

    def learn_from(self, function: str, args: tuple[Any, ...], answer: Any) -> None:
        super().learn_from(function, args, answer)
        if function == "suspend":
            for item in args[1]:
                calls = item.get("calls") if isinstance(item, dict) else None
                for call in calls if isinstance(calls, list) else ():
                    if isinstance(call, dict) and isinstance(call.get("call_id"), str):
                        self.suspended_calls.append((str(item.get("turn_id")), call["call_id"], call.get("token")))

    # ---- the owner's ----

    def begin_call(self) -> tuple[Any, ...]:
        return ([{**self.token(), "call_id": self._call_id(), "step_id": "s1", "tool": "think",
                  "effect": self.dice.choice([*_EFFECTS, None]), "timeout_seconds": self.dice.choice([None, 2.0]), "reserve": self._amounts()}
                 for _ in range(self.dice.choice([1, 1, 2, 3]))],)  # fmt: skip

    def record_call(self) -> tuple[Any, ...]:
        items = []
        for _ in range(self.dice.choice([1, 1, 2])):
            status = self.mostly("success", self.dice.choice(_STATUSES), 0.7)
            outcome = {"result": self._result()} if status == "success" else {"error": {"code": "E", "message": "no"}}
            items.append({**self.token(), "call_id": self._call_id(), "status": status, **outcome, **self._drafts_of_owner(),
                          "used": self._amounts()})  # fmt: skip
            if self.dice.random() < 0.3:
                items[-1]["open_as"] = self.mostly(
                    {"step_id": "s1", "tool": "think"}, self.dice.choice([None, [], {"tool": ""}])
                )
                items[-1]["phase"] = self.mostly(self.dice.choice(["act", "reflect", None]), "dance", 0.95)
            if self.dice.random() < 0.3:
                intents = [{key: each[key] for key in each.keys() - _OWNER} for each in self.begin_call()[0]]
                items[-1]["intents"] = self.mostly(intents, self.dice.choice([None, [], {}, [1]]), 0.95)
        return (items,)

    def suspend(self) -> tuple[Any, ...]:
        items = []
        for _ in range(self.dice.choice([1, 1, 1, 2])):
            said = self._drafts_of_owner()
            item = {**self.token(), "phase": self.dice.choice(["act", None]), **said,
                    "join": self.dice.choice(["all", "each", None]),
                    "calls": [self._call(len(said["signals"]), n) for n in range(self.dice.choice([0, 1, 1, 2, 3]))]}  # fmt: skip
            item |= {} if self.dice.random() < 0.7 else {"seen": self.dice.randrange(3)}
            items.append(item | self._terminates())
        return (items,)

    def defer(self) -> tuple[Any, ...]:
        return ([{**self.token(), "reason": self.dice.choice(["busy", None]), "delay_seconds": self.dice.choice([0, 0.5, 5]),
                  "deferrals_max": self.dice.choice([None, 1, 9]), **self._terminates()} for _ in range(self.dice.choice([1, 1, 2]))],)  # fmt: skip

    def _terminates(self) -> dict[str, Any]:
        return {} if self.dice.random() < 0.6 else {"terminates": self.dice.choice([True, True, False, None])}

    # ---- from outside ----

    def read_box(self) -> tuple[Any, ...]:
        return f"box_{self.known_turn()}", 0, self.dice.choice([1, 1000, 0])

    def read_shared_log(self) -> tuple[Any, ...]:
        """After a position, so without checkpoints: those of the in-memory kernel are at other positions."""
        names = self.dice.choice([None, [], ["user:message", "note"]])
        return self.run(), self.dice.choice([0, 1, 2, 3, 5, 9, 20, 10**6]), names, self.dice.choice([0, 0, 2, 4])

    def read_conversation(self) -> tuple[Any, ...]:
        return (
            self.run(),
            self.dice.choice(["one", "two", "three"]),
            self.dice.choice([0, 3, 20, 10**6]),
            self.dice.choice([0, 1, 2, 100]),
        )

    def first_failure(self) -> tuple[Any, ...]:
        return (self.run(),)

    def report(self) -> tuple[Any, ...]:
        items = []
        for _ in range(self.dice.choice([1, 1, 2, 3])):
            turn_id, call_id, token = self.token().get("turn_id"), self._call_id(), self.dice.choice([None, "t"])
            if self.suspended_calls and self.dice.random() < 0.8:
                turn_id, call_id, token = self.suspended_calls[
                    -1 - min(len(self.suspended_calls) - 1, int(self.dice.expovariate(0.4)))
                ]
            item = {"turn_id": turn_id, "call_id": call_id, "token": self.mostly(token, "wrong"),
                    "status": self.mostly("success", self.dice.choice(["failed", "timeout"]), 0.8),
                    "result": self._result(), "error": self.mostly({"code": "E"}, None)}  # fmt: skip
            item |= {} if self.dice.random() < 0.7 else {"actor": "me"}
            item |= {} if self.dice.random() < 0.7 else {"may_still_run": self.dice.choice([True, False, None])}
            items.append(item)
        return (items,)

    def report_and_claim(self) -> tuple[Any, ...]:
        return (*self.report(), *self.claim())

    def take_commands(self) -> tuple[Any, ...]:
        return (
            self.dice.choice([["search"], ["search", "fetch"], [], [{"tool": "fetch", "pool": "far"}, "search"]]),
            self.dice.choice([1, 10]),
            self.dice.choice([0.0, 5.0]),
        )

    def command_pools(self) -> tuple[Any, ...]:
        return (self.dice.choice(["search", "fetch", "none"]),)

    def take_halts(self) -> tuple[Any, ...]:
        return self.dice.choice([[], ["far"]]), self.dice.choice([1, 10]), self.dice.choice([0.0, 5.0])

    def stop(self) -> tuple[Any, ...]:
        turns = [self.token().get("turn_id") if self.dice.random() < 0.6 else self.known_turn()
                 for _ in range(self.dice.choice([1, 1, 2]))]  # fmt: skip
        return ([{"turn_id": turn_id, **self._stop()} for turn_id in turns],)

    def stop_runs(self) -> tuple[Any, ...]:
        return (
            [{"run_id": self.run(), **self._stop(), **self._closing()} for _ in range(self.dice.choice([1, 1, 2]))],
        )

    def _closing(self) -> dict[str, Any]:
        return {"mode": "close"} if self.dice.random() < 0.3 else {}

    def sweep_stuck(self) -> tuple[Any, ...]:
        return self.dice.choice([1, 2, 100, None]), self.dice.choice(["", None, f"{self.run()}/two"])

    def sweep(self) -> tuple[Any, ...]:
        return (self.dice.choice([0, 1, 2, 100, None]),)

    sweep_waits = sweep_stops = sweep_reports = sweep

    def _stop(self) -> dict[str, Any]:
        stop: dict[str, Any] = {"mode": self.dice.choice(["force", "graceful", "graceful"])}
        if self.dice.random() < 0.6:
            stop |= {"grace_seconds": self.dice.choice([0, 0.5, 20]), "reason": self.dice.choice(["enough", None])}
        return stop if self.dice.random() < 0.7 else {**stop, "actor": "me"}

    def _call_id(self) -> str:
        return f"c{self.dice.randrange(4)}"

    def _result(self) -> Any:
        return self.dice.choice([None, 7, {"a": "é"}, "x" * 400, {"__cg_control": {"after_execution": "terminate"}}])

    def _call(self, drafts: int, n: int) -> dict[str, Any]:
        kind = self.dice.choice(["tool", "tool", "tool", "human", "timer", *(["child", "child"] if drafts else [])])
        call: dict[str, Any] = {
            "call_id": self.mostly(f"c{n}", self._call_id()), "step_id": "s1", "tool": self.dice.choice(["search", "fetch"]),
            "kind": kind, "effect": self.dice.choice([*_EFFECTS, None]), "timeout_seconds": self.dice.choice([0.5, 5.0, 1.0005]),
            "token": self.dice.choice([None, "t"]), "after_execution": self.dice.choice(["suspend", "terminate", None]),
            "may_override": self.dice.random() < 0.3, "fails_fast": self.dice.random() < 0.4,
        }  # fmt: skip
        if kind == "tool":
            body = self.dice.choice([
                {"arguments": {"q": 1}}, {"long": "x" * 400}, None, {"halt": {"gateway": "far"}}, {"halt": self.dice.choice(["x", None, [1]])},
            ])  # fmt: skip
            routed = {"body": body, "pool": self.pool(), "priority": self.mostly(None, self.dice.randrange(4))}
            call["command"] = self.dice.choice([{"subject": "cmd.search", "body": body}, routed, None])
        elif kind == "child":
            call["child"] = {
                "agent": self.dice.choice([*AGENTS, "nobody"]), "instance": self.dice.choice([None, f"i{self.dice.randrange(9)}"]),
                "turn_id": self.new_turn(), "activation": self.dice.randrange(drafts), "max_attempts": 3, "ttl_seconds": 60.0,
                "cause": self.dice.choice([None, 0, {"seq": 1}]), "priority": self.dice.randrange(4), "pool": self.pool(),
                "result_fields": self.dice.choice([None, [{"name": "f"}]]), "budget": self._amounts(30), "callback_url": self._url(),
            }  # fmt: skip
        if kind != "timer" and self.dice.random() < 0.3:
            call["timeout_seconds"] = None
        return call
