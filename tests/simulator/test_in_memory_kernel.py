"""The in-memory kernel agrees with PostgreSQL, also on calls that no worker makes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from heliograph.errors import KernelRejected
from heliograph.ledger.kernel import KERNEL
from heliograph.testing.kernel.backend import PostgresBackend
from heliograph.testing.kernel.in_memory import POSTGRES_ONLY, InMemoryKernel
from heliograph.testing.kernel.jsonb import decode, encode, octets, written
from tests.simulator.caller import CALLED, Caller
from tests.simulator.compare import answer_of, stored
from tests.simulator.junk import any_json


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.more) for n in range(5, 80, 5))])
def test_any_sequence_of_calls_has_the_same_answers_and_rows_in_both_kernels(
    in_memory: InMemoryKernel, real: PostgresBackend, first: int
) -> None:
    for seed in range(first, first + 5):
        caller = Caller(seed)
        in_memory.reset()
        real.reset()
        for function, args in caller.calls(100):
            answers = [answer_of(backend, function, args, caller.now) for backend in (in_memory, real)]
            assert answers[0] == answers[1], f"seed {seed}: {function} {args}"
            if answers[0][0] == "answered":
                caller.learn(function, args, answers[0][1])
        assert stored(in_memory, "p") == stored(real, "p"), f"seed {seed}"


def test_every_function_of_the_kernel_is_among_the_calls() -> None:
    assert KERNEL.keys() == CALLED | POSTGRES_ONLY
    assert not CALLED & POSTGRES_ONLY


def test_value_has_the_text_that_postgres_gives_it(real: PostgresBackend) -> None:
    for seed in range(400):
        value = decode(encode(any_json(seed)))
        [row] = real.fetch("select $1::jsonb::text, octet_length($1::jsonb::text)", encode(value))
        assert (written(value), octets(value)) == tuple(row), value


def test_rejected_call_writes_nothing(in_memory: InMemoryKernel) -> None:
    now = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
    signals = [{"name": "workflow:start", "payload": {}}]
    woken = {"agent": "nobody", "turn_id": "turn_1", "cause": 0, "activation": 0, "max_attempts": 1, "ttl_seconds": 1.0}
    item = {"run_id": "run_1", "target": "a", "request_hash": "h", "agents": ["one"], "signals": signals,
            "reaction": {"activations": [woken]}}  # fmt: skip
    before = in_memory.dump("p")
    with pytest.raises(KernelRejected, match="23503"):
        in_memory.call("start_runs", ("p", [item]), now)
    assert in_memory.dump("p") == before


@pytest.mark.parametrize("depth", [None, 0, 2, 20, 21, 10**12, "x"])
def test_depth_of_a_task_from_elsewhere_has_the_same_effect_in_both_kernels(
    in_memory: InMemoryKernel, real: PostgresBackend, depth: Any
) -> None:
    now = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
    woken = {
        "agent": "one",
        "turn_id": "turn_1",
        "cause": 0,
        "activation": 1,
        "max_attempts": 1,
        "ttl_seconds": 1.0,
        "depth": depth,
    }
    signals = [{"name": "workflow:start"}, {"name": "agent:activated", "agent": "one", "parent": 0}]
    item = {"run_id": "run_1", "target": "a", "request_hash": "h", "agents": ["one"], "signals": signals,
            "reaction": {"state": {}, "memory": {}, "activations": [woken]}}  # fmt: skip
    answers = []
    for backend in (in_memory, real):
        backend.reset()
        started = answer_of(backend, "start_runs", ("p", [item]), now)
        answers.append((started, answer_of(backend, "claim", ("p", [{"target": "a"}], "w", 1, 1.0), now)))
    assert answers[0] == answers[1]
    assert stored(in_memory, "p") == stored(real, "p")
    assert (answers[0][0][0] == "answered") is (depth not in (10**12, "x"))


@pytest.mark.parametrize("activations", [None, {}, 5, "x", True, [5], [None]], ids=str)
def test_wrong_activations_of_a_reaction_have_the_same_effect_in_both_kernels(
    in_memory: InMemoryKernel, real: PostgresBackend, activations: Any
) -> None:
    now = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
    run = {"run_id": "run_1", "target": "a", "request_hash": "h", "agents": ["one"],
           "signals": [{"name": "workflow:start"}], "reaction": {}}  # fmt: skip
    item = {"run_id": "run_1", "version": 1, "signals": [], "reaction": {"activations": activations}}
    answers = []
    for backend in (in_memory, real):
        backend.reset()
        backend.call("start_runs", ("p", [run]), now)
        (answer,) = backend.call("react", ("p", [item]), now)
        answers.append((answer["outcome"], answer["code"], backend.dump("p")["runs"][0]["rejections"]))
    assert answers == [("rejected", "22023", 1)] * 2
    assert stored(in_memory, "p") == stored(real, "p")


def test_projects_are_isolated_in_the_in_memory_kernel(in_memory: InMemoryKernel) -> None:
    now = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
    item = {"run_id": "run_1", "target": "a", "request_hash": "h", "agents": ["one"],
            "signals": [{"name": "workflow:start"}], "reaction": {}}  # fmt: skip
    for project in ("p", "q"):
        assert in_memory.call("start_runs", (project, [item]), now)[0]["outcome"] == "started"
    assert [len(in_memory.dump(project)["runs"]) for project in ("p", "q", "r")] == [1, 1, 0]
