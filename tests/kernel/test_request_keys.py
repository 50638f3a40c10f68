"""No misspelt key goes unnoticed: every function rejects an object with an unknown key, and names the key.

The functions come from the catalog, so one that takes JSON and has no request here fails the tests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import asyncpg
import pytest

from heliograph.errors import KernelRejected
from heliograph.ledger.kernel import KERNEL
from heliograph.request_items import CardItem, SignalItem
from heliograph.requests import REQUESTS, WITH_CLAIM
from heliograph.testing.kernel.in_memory import POSTGRES_ONLY, InMemoryKernel
from heliograph.testing.kernel.keys import STRINGS, shape_of
from tests.kernel.filled import BREAKER, RATE
from tests.kernel.kit import START, TARGET, Item, Kernel, draft, ending, message, run_item, stopping, turn_item
from tests.kernel.waits import child, command
from tests.logins import connected, login

MORE: dict[str, list[Any]] = {
    "claim": ["worker", 1, 30.0],
    "finish_and_claim": [[{"target": TARGET}], "worker", 1, 30.0],
    "start_and_claim": [[{"target": TARGET}], "worker", 1, 30.0],
    "report_and_claim": [[{"target": TARGET}], "worker", 1, 30.0],
    "renew": [30.0],
    "take_commands": [1, 1.0],
    "take_halts": [1, 1.0],
    "sweep_pending_reactions": [1],
}
CLAIM_KEYS = dict(WITH_CLAIM.values())  # the key of the answers of functions that also claim
FREE = {
    "set_limits",
    "report_result",
    "subscribe",
}  # limits have their own list of names; a result is free; positions are by run
CARD = {"card_id": "card_1", "kind": "note", "content": {}}
# The SQLSTATE of a rejected call, or the code of a rejected item.
CODES = {"22023", "22P02", "invalid_signal"}  # 22P02: of a column that is no JSON


def requests(claimed: Item) -> dict[str, Item]:
    """A request of each function, with every object that it may contain."""
    call: Item = {"step_id": "s", "tool": "t", "effect": "once"}
    end = ending(claimed, wakes={"turn_x": "critic"}, stops={"turns": "all", "reason": "enough"})
    end["reaction"]["activations"][0]["cause"] = {"seq": 1}
    started = run_item("run_n", ["writer"], {"turn_n": "writer"}, cause={"seq": 1})
    started["reaction"]["stops"] = {"turns": "all", "reason": "enough"}
    started["signals"][0]["parent"] = "sig_run_a_2"
    started["fork"] = {"run_id": "run_a", "seq": 2, "turns": [{"turn_id": "turn_b", "origin": "turn_a"}]}
    part = {"recording": {"body": "{}", "name": "n", "tags": ["t"]}}
    return {
        "start_runs": started | part,
        "start_and_claim": started | part,
        "enqueue": message("run_a", "critic", "turn_m"),
        "claim": {"target": TARGET},
        "take_commands": {"tool": "search"},
        "fail_unclaimable": {"target": TARGET},
        "renew": turn_item(claimed),
        "release": turn_item(claimed, failure={"code": "C", "message": "m"}),
        "append": turn_item(claimed, draft("note", claimed["activation_id"]), cards=[CARD]) | part,
        "begin_call": turn_item(claimed, call_id="c1", circuit_breaker=BREAKER, rates=[RATE], **call),
        "record_call": turn_item(claimed, draft("note", claimed["activation_id"]), call_id="c2", status="success", result=1,
                              open_as={"step_id": "s", "tool": "t"},
                              intents=[{"call_id": "c5", "circuit_breaker": BREAKER, "rates": [RATE], **call}]) | part,
        "suspend": turn_item(claimed, draft("note", claimed["activation_id"]), cards=[CARD], calls=[
            command("c3", circuit_breaker=BREAKER, rates=[RATE]) | {"command": {"subject": "s", "body": {}}}, child("c4", "critic", "turn_c", 0, cause={"seq": 1})]) | part,
        "defer": turn_item(claimed, reason="later", delay_seconds=1.0),
        "finish": end | {"recording": "{}"},
        "finish_and_claim": end | {"recording": "{}"},
        "stop": stopping("turn_a"),
        "stop_runs": stopping("run_a"),
        "react": {"run_id": "run_a", "version": end["version"], "signals": end["signals"], "reaction": end["reaction"]} | part,
        "report": {"turn_id": "turn_a", "call_id": "c9", "status": "success", "result": 1},
        "report_and_claim": {"turn_id": "turn_a", "call_id": "c9", "status": "success", "result": 1},
        "record_callbacks": {"callback_id": "callback_1", "attempt": 1, "state": "delivered"},
        "put_boxes": {"box_id": "b", "cards": [CARD]},
        "fork_boxes": {"box_id": "b", "base_box_id": "box_turn_a"},
        "replace_boxes": turn_item(claimed, context_box_id=None),
        "remember": {"memory_id": "m", "text": "t"},
        "forget": {"memory_id": "m"},
        "beat": {"worker": "w"},
        "deregister": {"worker": "w"},
        "record_positions": {"name": "s", "subscriber": "w", "run_id": "run_a", "position": 1},
    }  # fmt: skip


def objects(kind: Any, value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every object of declared keys in a request: where it is, and its declaration."""
    yield path, kind
    for key, inner in shape_of(kind).items():
        below = value.get(key)
        if inner is None or not isinstance(below, dict | list):
            continue
        places = range(len(below)) if isinstance(below, list) else [None]
        for n in places:
            at = (*path, key) if n is None else (*path, key, n)
            yield from objects(inner, below if n is None else below[n], at)


def declarations(kind: Any) -> Iterator[Any]:
    """The declaration of a request, and those of all objects in it."""
    yield kind
    for inner in shape_of(kind).values():
        if inner is not None:
            yield from declarations(inner)


def with_key(item: Item, path: tuple[str | int, ...], key: str) -> Item:
    changed = deepcopy(item)
    place: Any = changed
    for step in path:
        place = place[step]
    place[key] = 1
    return changed


async def rejection(kernel: Kernel, function: str, item: Any) -> tuple[str, str]:
    """The code and the message of a rejected call, or of a rejected item."""
    try:
        answers = await kernel.call(function, [item], *MORE.get(function, []))
        [answer] = answers_of(function, answers)
    except asyncpg.PostgresError as error:
        return str(error.sqlstate), str(error)
    except KernelRejected as error:  # the items of this function are typed columns
        return error.message[-6:-1], error.message[:-8]
    return answer.get("code", answer["outcome"]), answer.get("message", "")


def answers_of(function: str, answer: Any) -> Any:
    """The answers about the items."""
    return answer[CLAIM_KEYS[function]] if function in CLAIM_KEYS else answer


async def taking_json(kernel: Kernel) -> set[str]:
    rows = await kernel.connection.fetch(
        "select proname from pg_proc where pronamespace = 'heliograph'::regnamespace and proname !~ '^_'"
        " and 'jsonb'::regtype = any (proargtypes)"
    )
    return {row["proname"] for row in rows}


async def test_every_function_that_takes_json_declares_its_request(kernel: Kernel) -> None:
    columns = {name for name, function in KERNEL.items() if function.columns}
    assert await taking_json(kernel) | columns == REQUESTS.keys() | set(STRINGS) | FREE
    assert requests(await kernel.running()).keys() == REQUESTS.keys()


@pytest.mark.parametrize("function", REQUESTS)
async def test_unknown_key_of_any_object_is_rejected_by_name_and_nothing_is_written(
    kernel: Kernel, function: str
) -> None:
    claimed = await kernel.running()
    item, before = requests(claimed)[function], await kernel.everything()
    found = list(objects(REQUESTS[function], item))
    assert {kind for _, kind in found} == set(declarations(REQUESTS[function]))
    for path, kind in found:
        code, text = await rejection(kernel, function, with_key(item, path, "naem"))
        assert code in CODES, (function, path, code, text)
        assert 'unknown key "naem"; its keys are ' in text
        assert set(text.partition("its keys are ")[2].split(", ")) == shape_of(kind).keys(), (function, path)
        assert re.search(rf"(^|\.|p_\w+){re.escape(_place(path))} has", text), text
    after = await kernel.everything()
    for run in (*before["runs"], *after["runs"]):
        run["rejections"] = 0  # react counts them
    assert after == before


def _place(path: tuple[str | int, ...]) -> str:
    """The end of the path in the message: its last name, `[]` for a list."""
    names = [step for step in path if isinstance(step, str)]
    return (names[-1] if names else "") + ("[]" if not path or isinstance(path[-1], int) else "")


@pytest.mark.parametrize("function", sorted(REQUESTS.keys() - POSTGRES_ONLY))
async def test_in_memory_kernel_rejects_the_same_keys(kernel: Kernel, function: str) -> None:
    """Drafts and cards of a turn that it does not have are not looked at, as in SQL."""
    item = requests(await kernel.running())[function]
    for path, kind in objects(REQUESTS[function], item):
        if kind in (SignalItem, CardItem) and function not in ("start_runs", "start_and_claim", "suspend", "put_boxes"):
            continue
        if kind is SignalItem and function == "suspend":
            continue
        given = ("p", [with_key(item, path, "naem")], *MORE.get(function, []))
        try:
            [answer] = answers_of(function, InMemoryKernel().call(function, given, START))
        except KernelRejected as error:
            answer = {"message": error.message}
        assert 'unknown key "naem"' in answer.get("message", ""), (function, path)


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
    item = requests(claimed)[function]
    place: Any = item
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
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
        item = requests(claimed)[function]
        place: Any = item
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
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


@pytest.mark.parametrize("function", STRINGS)
async def test_object_in_a_list_of_strings_is_rejected(kernel: Kernel, function: str) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match="is a string, not an object"):
        await kernel.call(function, [{"target": TARGET}], *MORE.get(function, []))
    if function not in POSTGRES_ONLY:
        with pytest.raises(KernelRejected, match="22023"):
            InMemoryKernel().call(function, ("p", [{"target": TARGET}], *MORE.get(function, [])), START)


HOSTILE = [
    "__proto__",
    "",
    " phase",
    "Phase",
    "phase\n\t\"'$1%s",
    "k" * 100_000,
    "ключ\u202e\U0001f600",
    "$.a",
    "{phase}",
]


@pytest.mark.parametrize("key", HOSTILE, ids=lambda key: ascii(key)[:20])
async def test_message_about_a_hostile_key_is_short_and_quotes_it(kernel: Kernel, key: str) -> None:
    claimed = await kernel.running()
    with pytest.raises(asyncpg.InvalidParameterValueError) as rejected:
        await kernel.call("release", [turn_item(claimed), turn_item(claimed) | {key: 1}])
    text = str(rejected.value)
    assert text == (
        f"p_items[] has the unknown key {json.dumps(key[:60], ensure_ascii=False)}; its keys are agent_id, turn_id, epoch, failure"
    )


async def test_thousands_of_unknown_keys_are_one_message(kernel: Kernel) -> None:
    claimed = await kernel.running()
    item = turn_item(claimed) | {f"key_{n:05}": {"agent_id": n} for n in range(10_000)}
    with pytest.raises(asyncpg.InvalidParameterValueError, match='unknown key "key_00000"; its keys'):
        await kernel.call("release", [item])


async def test_thousands_of_activations_take_linear_time(kernel: Kernel) -> None:
    """20,000 took minutes: a sort copied the whole item for each of its activations, and a check copied all activations."""
    reaction = {"activations": [{"agent": "a", "cause": 0}] * 20_000}
    ending_item = turn_item(
        await kernel.running(), outcome="success", content={}, version=1, signals=[], reaction=reaction
    )
    for function, item, outcome in (
        ("react", {"run_id": "run_x", "version": 1, "signals": [], "reaction": reaction}, "conflict"),
        ("finish", ending_item, "rejected"),
    ):
        async with kernel.connection.transaction():
            await kernel.connection.execute("set local statement_timeout = '15s'")
            [answer] = await kernel.call(function, [item])
        assert answer["outcome"] == outcome


async def test_free_values_may_have_any_keys(kernel: Kernel) -> None:
    claimed, free = await kernel.running(), {"naem": {"__proto__": [{"x": 1}]}}
    note = draft("note", claimed["activation_id"], payload=free)
    card = CARD | {"content": free}
    assert (await kernel.append(claimed, note, cards=[card]))["outcome"] == "ok"
    await kernel.call("remember", [{"memory_id": "m", "text": "t", "metadata": free}])
    assert (await kernel.finish(claimed, ends="success", state=free, memory=free))["outcome"] == "ok"


async def test_service_login_gets_the_same_rejection(kernel: Kernel, shared_url: str) -> None:
    statement = KERNEL["enqueue"].statement()
    async with login(shared_url, kernel.project, services=("api",)) as url, connected(url) as service:
        with pytest.raises(asyncpg.InvalidParameterValueError, match='unknown key "naem"; its keys are run_id'):
            await service.fetchval(statement, kernel.project, [{"run_id": "r", "naem": "mail:came"}])
