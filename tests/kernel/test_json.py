"""JSON that some client cannot decode is rejected by every function that takes JSON, and nothing of it is stored (S22)."""

from __future__ import annotations

import sys
from typing import Any

import asyncpg
import pytest

from heliograph.errors import KernelRejected
from heliograph.ledger.pool import Database, explain
from heliograph.testing.kernel.in_memory import InMemoryKernel
from tests.kernel.filled import fill
from tests.kernel.kit import Kernel, message

LARGEST = int(sys.float_info.max)
POISON = {
    "exponent": ("1e5000", "number_too_large"),
    "negative": ("-1e309", "number_too_large"),
    "just beyond a double": (str(LARGEST * 11 // 10), "number_too_large"),
    "long fraction": ("0." + "3" * 4301, "number_too_large"),
    "zeros of a fraction": ("0e-5000", "number_too_large"),
    "deep list": ("[" * 2000 + "]" * 2000, "json_too_deep"),
    "deep object": ('{"a":' * 2000 + "1" + "}" * 2000, "json_too_deep"),
    "as deep as can be stored": ("[" * 6000 + "]" * 6000, "json_too_deep"),
}
HARMLESS = (
    "[" * 90 + "]" * 90, str(LARGEST), f"-{LARGEST}", "1.7976931348623157e308", "5e-324", "0." + "3" * 4299,
    '"' + "9" * 5000 + '"', '"' + "[" * 5000 + '"', "[" + "{}," * 2000 + "{}]",
)  # fmt: skip


async def functions_with_json(kernel: Kernel) -> list[Any]:
    """Every public function with an argument that may hold JSON: its name, and the types of its arguments."""
    return await kernel.connection.fetch(
        "select name, types from (select p.proname as name, array(select format_type(t, null)"
        "    from unnest(p.proargtypes) with ordinality a (t, n) order by n) as types from pg_proc p"
        "  where p.pronamespace = 'heliograph'::regnamespace and p.proname !~ '^_') f"
        " where array_to_string(types, ' ') ~ 'json|record|any|heliograph' order by name"
    )


# start_runs rejects the null items of this test before claim sees its targets, which it checks like those of its other callers
BEHIND = {("start_and_claim", 13)}


@pytest.mark.proves("S22")
@pytest.mark.parametrize("name", POISON)
async def test_every_function_that_takes_json_rejects_what_a_client_cannot_decode(kernel: Kernel, name: str) -> None:
    poison, code = POISON[name]
    functions = await functions_with_json(kernel)
    assert {kind for each in functions for kind in each["types"] if "json" in kind} == {"jsonb", "jsonb[]"}
    assert len(functions) > 25
    await fill(kernel)
    before = await kernel.everything()
    for function in functions:
        for place, kind in enumerate(function["types"]):
            if not kind.startswith("jsonb") or (function["name"], place) in BEHIND:
                continue
            arguments = [
                f"array[null]::{each}" if each.endswith("[]") else f"null::{each}" for each in function["types"]
            ]
            arguments[0], arguments[place] = "$1", "array[$2::text::jsonb]" if kind == "jsonb[]" else "$2::text::jsonb"
            query = f"select heliograph.{function['name']}({', '.join(arguments)})"
            messages = []
            for given in (f'[{{"run_id": "run_a", "turn_id": "turn_1", "x": {poison}}}]', f'{{"x": [1, {poison}]}}'):
                with pytest.raises(asyncpg.InvalidParameterValueError) as raised:
                    await kernel.connection.fetchval(query, kernel.project, given)
                messages.append(str(raised.value).partition(":")[0])
            assert code in messages, function  # one of the two is the shape that the function takes
    assert await kernel.everything() == before


@pytest.mark.proves("S22")
@pytest.mark.parametrize("value", HARMLESS, ids=lambda value: f"{value[:12]} {len(value)}")
async def test_values_that_every_client_can_decode_are_accepted(kernel: Kernel, value: str) -> None:
    await kernel.running()
    items = f'[{{"memory_id": "memory_1", "text": "x", "metadata": {{"x": {value}}}}}]'
    query = "select heliograph.remember($1, $2::text::jsonb, now())"
    assert (await kernel.connection.fetchval(query, kernel.project, items))[0]["outcome"] == "remembered"


@pytest.mark.proves("S22")
async def test_nesting_beyond_the_parsers_stack_has_the_same_code(kernel: Kernel) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    with pytest.raises(asyncpg.StatementTooComplexError) as raised:
        await kernel.connection.fetchval("select heliograph.enqueue($1, $2::text::jsonb, now())", kernel.project, deep)
    explained = explain(raised.value, "heliograph.enqueue")
    assert isinstance(explained, KernelRejected)
    assert explained.code == "json_too_deep"


@pytest.mark.parametrize(
    ("value", "code"), [([[]], None), (LARGEST * 2, "number_too_large"), ("deep", "json_too_deep")],
    ids=["harmless", "number", "deep"],
)  # fmt: skip
async def test_both_kernels_reject_the_same_values_with_the_same_codes(
    kernel: Kernel, shared_url: str, value: Any, code: str | None
) -> None:
    if value == "deep":
        value = []
        for _ in range(120):
            value = [value]
    items = [message("run_a", "writer", "turn_1", payload=value)]
    database = await Database.open(shared_url, size=1)
    codes: list[str | None] = []
    try:
        await database.call("enqueue", kernel.project, items)
        codes.append(None)
    except KernelRejected as refused:
        codes.append(refused.code)
    finally:
        await database.close()
    try:
        InMemoryKernel().call("enqueue", (kernel.project, items))
        codes.append(None)
    except KernelRejected as refused:
        codes.append(refused.code)
    assert codes == [code, code]
