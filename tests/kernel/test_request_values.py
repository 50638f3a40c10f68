"""A value of a wrong type or an unknown key within a value is rejected by every function, never ignored."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.errors import KernelRejected
from heliograph.testing.kernel.in_memory import POSTGRES_ONLY, InMemoryKernel
from tests.kernel.kit import START, Kernel, message
from tests.kernel.request_examples import CODES, MORE, rejection, requests, with_value

STRICT_BY_VALUE = {
    "budget of a message": ("enqueue", ("budget",), {"tokns": 1}),
    "budget of an activation": ("start_runs", ("reaction", "activations", 0, "budget"), {"tokns": 1}),
    "budget of a child": ("suspend", ("calls", 1, "child", "budget"), {"tokns": 1}),
    "reserve": ("begin_call", ("reserve",), {"tokns": 1}),
    "used": ("record_call", ("used",), {"tokns": 1}),
    "result_fields of a message": ("enqueue", ("result_fields",), [{"naem": "a"}]),
    "result_fields of an activation": ("start_runs", ("reaction", "activations", 0, "result_fields"), [{"naem": "a"}]),
    "result_fields of a child": ("suspend", ("calls", 1, "child", "result_fields"), [{"naem": "a"}]),
}  # fmt: skip


@pytest.mark.parametrize("name", STRICT_BY_VALUE)
async def test_misspelt_amounts_and_fields_are_rejected(kernel: Kernel, name: str) -> None:
    claimed, (function, path, value) = await kernel.running(), STRICT_BY_VALUE[name]
    item = with_value(requests(claimed)[function], path, value)
    code, _ = await rejection(kernel, function, item)
    assert code == "22023"


async def test_misspelt_cause_is_rejected_with_the_path_of_its_object(kernel: Kernel) -> None:
    item = requests(await kernel.running())["react"]
    item["reaction"]["activations"][0]["cause"] = {"sq": 1}
    assert await rejection(kernel, "react", item) == (
        "22023", 'p_items[].reaction.activations[].cause has the unknown key "sq"; its keys are seq',
    )  # fmt: skip


NO_POSITIONS: list[Any] = [{}, {"seq": None}, {"seq": 0}, {"seq": -1}, {"seq": "first"}]


@pytest.mark.parametrize(("function", "cause"), [
    *((function, cause) for function in ("start_runs", "finish", "react", "suspend") for cause in NO_POSITIONS),
    *((function, None) for function in ("start_runs", "finish", "react")),  # a child may lack a cause
])  # fmt: skip
async def test_cause_without_a_position_is_rejected_with_its_path(kernel: Kernel, function: str, cause: Any) -> None:
    item = requests(await kernel.running())[function]
    if function == "suspend":
        path, holder = "p_items[].calls[].child", item["calls"][1]["child"]
    else:
        path, holder = "[].reaction.activations[]", item["reaction"]["activations"][0]
    holder["cause"] = cause
    problem = '.cause must be the index of a signal of this request, or {"seq": n}'
    code, text = await rejection(kernel, function, item)
    assert (code, path + problem in text) == ("22023", True), text
    try:
        [answer] = InMemoryKernel().call(function, ("p", [item]), START)
    except KernelRejected as error:
        answer = {"code": error.code, "message": error.message}
    assert problem in answer["message"]


async def test_message_whose_cause_is_an_object_is_rejected(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer"], {"turn_0": "writer"})
    code, text = await rejection(kernel, "enqueue", message("run_a", "writer", "turn_m", cause={}))
    assert (code, text) == ("unknown_cause", "run run_a has no signal {}")


STRICT_BY_TYPE: dict[str, tuple[str, tuple[Any, ...], list[Any]]] = {
    "reaction": ("finish", ("reaction",), [[], "all", 7, True]),
    "reaction of a start": ("start_runs", ("reaction",), [[], "all", 7, True]),
    "reaction of react": ("react", ("reaction",), [[], "all", 7, True]),
    "memory": ("finish", ("reaction", "memory"), [[], "x", 7]),
    "keeps_taint": ("finish", ("reaction", "keeps_taint"), [[], {}, "false", 0]),
    "stops of a start": ("start_runs", ("reaction", "stops"), [[], [{"turns": "all"}], "all", 7, True]),
    "stops of an ending": ("finish", ("reaction", "stops"), [[], [{"turns": "all"}], "all", 7, True]),
    "stops of react": ("react", ("reaction", "stops"), [[], [{"turns": "all"}], "all", 7, True]),
    "turns of stops": ("finish", ("reaction", "stops", "turns"), [None, [], ["all"], "people", 7]),
    "reason of stops": ("finish", ("reaction", "stops", "reason"), [[], {}, 7]),
    "status": ("finish", ("reaction", "status"), [[], {}, 7, True, "done", "ended"]),
    "outcome": ("finish", ("reaction", "outcome"), [[], {}, 7, True, "won", "success"]),
    "status of a start": ("start_runs", ("reaction", "status"), [[], 7, "done", "ended"]),
    "outcome of react": ("react", ("reaction", "outcome"), [[], 7, "won", "success"]),
    "target": ("start_runs", ("target",), [[], {}, 7, True, None]),
    "request_hash": ("start_runs", ("request_hash",), [[], {}, 7, True, None]),
    "time of a signal": ("append", ("signals", 0, "at"), [[], {}, True]),
    "token of a report": ("report", ("token",), [[], {}, 7, True]),
    "actor of a report": ("report", ("actor",), [[], {}, 7, True]),
    "token of a call": ("suspend", ("calls", 0, "token"), [[], {}, 7, True]),
    "subject of a command": ("suspend", ("calls", 0, "command", "subject"), [[], {}, 7, True]),
    "error of a callback": ("record_callbacks", ("error",), [[], {}, 7, True]),
    "trust of a signal": ("append", ("signals", 0, "trust"), [[], {}, 7, True, "Untrusted"]),
    "trust of a deferral": ("defer", ("trust",), [[], {}, 7, True, "Untrusted"]),
    "trust of a memory": ("remember", ("trust",), [[], {}, 7, True, "Untrusted"]),
    "taint of a call": ("begin_call", ("taint",), ["mail", {}, 7, True]),
    "taint of a result": ("record_call", ("taint",), ["mail", {}, 7, True]),
    "taint of a call that is not made": ("record_call", ("open_as", "taint"), ["mail", {}, 7, True]),
    "taint of an open call": ("suspend", ("calls", 0, "taint"), ["mail", {}, 7, True]),
    "child of a tool": ("suspend", ("calls", 0, "child"), [[], "turn_c", 7]),
    "agents of a claim": ("claim", ("agents",), ["writer", {"writer": 1}, 7]),
    "agents of an unclaimable turn": ("fail_unclaimable", ("agents",), ["writer", {"writer": 1}, 7]),
}  # fmt: skip


@pytest.mark.parametrize("name", STRICT_BY_TYPE)
async def test_key_of_another_type_is_rejected_instead_of_being_ignored(kernel: Kernel, name: str) -> None:
    claimed, (function, path, values) = await kernel.running(), STRICT_BY_TYPE[name]
    before = await kernel.everything()
    for value in values:
        item = with_value(requests(claimed)[function], path, value)
        code, text = await rejection(kernel, function, item)
        assert code in CODES, (value, code, text)
        assert str(path[-1]) in text
        in_memory = ("p", [item], *MORE.get(function, []))
        if function not in POSTGRES_ONLY and path[0] != "signals":  # drafts of a stale owner are not looked at
            try:
                [answer] = InMemoryKernel().call(function, in_memory, START)
            except KernelRejected as error:
                answer = {"code": error.code, "message": error.message}
            assert str(path[-1]) in answer.get("message", ""), (value, answer)
    after = await kernel.everything()
    for run in (*before["runs"], *after["runs"]):
        run["rejections"] = 0  # react counts them
    assert after == before


async def test_stops_as_a_list_are_rejected_with_their_path(kernel: Kernel) -> None:
    item = requests(await kernel.running())["finish"]
    item["reaction"]["stops"] = ["turn_a"]
    assert await rejection(kernel, "finish", item) == (
        "22023",
        "p_items[].reaction.stops has the type object, not array",
    )
