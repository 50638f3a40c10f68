"""No misspelt key goes unnoticed: every function rejects an object with an unknown key, and names the key.

The functions come from the catalog, so one that takes JSON and has no request here fails the tests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from heliograph.errors import KernelRejected
from heliograph.ledger.kernel import KERNEL
from heliograph.request_items import CardItem, SignalItem
from heliograph.requests import REQUESTS
from heliograph.testing.kernel.in_memory import POSTGRES_ONLY, InMemoryKernel
from heliograph.testing.kernel.keys import STRINGS, shape_of
from tests.kernel.kit import START, TARGET, Kernel, draft, turn_item
from tests.kernel.request_examples import CARD, CODES, MORE, answers_of, rejection, requests, with_value
from tests.logins import connected, login

FREE = {
    "set_limits",
    "report_result",
    "subscribe",
}  # limits have their own list of names; a result is free; positions are by run


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
        code, text = await rejection(kernel, function, with_value(item, (*path, "naem"), 1))
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
        given = ("p", [with_value(item, (*path, "naem"), 1)], *MORE.get(function, []))
        try:
            [answer] = answers_of(function, InMemoryKernel().call(function, given, START))
        except KernelRejected as error:
            answer = {"message": error.message}
        assert 'unknown key "naem"' in answer.get("message", ""), (function, path)


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
