"""Gates over the source: purity of the lower floors, the worker's seam, and the text of the kernel."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import gates, sqllint, tidy

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "heliograph"
KERNEL = PACKAGE / "ledger" / "sql" / "kernel"

# The two exceptions of floors 0-3: protocols may declare `async`, SystemClock reads the time for app.py.
PROTOCOLS = ("ports", "world/seam")
CLOCK = "clock"
RUNTIME = ("worker", "execution", "agent_loop", "turn", "reactive", "definitions")


def layers() -> list[list[str]]:
    """The floors of pyproject.toml from the highest down, each as its modules."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (listed,) = [
        contract["layers"]
        for contract in contracts
        if contract["type"] == "layers" and contract["containers"] == ["heliograph"]
    ]
    return [[module.replace(".", "/") for module in re.findall(r"[\w.]+", layer)] for layer in listed]


def pure_modules() -> list[str]:
    floors = layers()
    reach = max(position for position, floor in enumerate(floors) if {"ledger", "egress"} & set(floor))
    return [module for floor in floors[reach + 1 :] for module in floor]


def files(*modules: str) -> Iterator[Path]:
    """The source of these modules of the package, one file or a whole folder each; absent ones have none."""
    for module in modules:
        yield from sorted((PACKAGE / module).rglob("*.py"))
        yield from sorted(PACKAGE.glob(f"{module}.py"))


def breaches(serializer: gates.Gate, *modules: str) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{problem}"
        for path in files(*modules)
        for problem in serializer(ast.parse(path.read_text(encoding="utf-8")))
    ]


@pytest.mark.more
def test_no_function_is_longer_than_60_lines() -> None:
    assert tidy.long_functions() == []


@pytest.mark.more  # reads all files
def test_lower_floors_do_no_io_and_read_no_clock() -> None:
    pure = [module for module in pure_modules() if module not in (*PROTOCOLS, CLOCK)]
    assert {"signals", "turn", "errors"} <= set(pure)
    assert breaches(gates.pure, *pure) == []


def test_protocols_declare_and_do_nothing() -> None:
    assert breaches(gates.declares_only, *PROTOCOLS) == []


def test_clock_reads_the_time_and_waits_for_nothing() -> None:
    assert breaches(gates.waits, CLOCK) == []


@pytest.mark.more  # reads all files
def test_runtime_reaches_time_randomness_and_waiting_through_the_world_alone() -> None:
    assert breaches(gates.behind_the_seam, *RUNTIME) == []


@pytest.mark.more  # reads all files
def test_loops_that_may_end_early_close_their_generators() -> None:
    users = "src/heliograph/testing/scenarios/"  # written as users write
    assert [breach for breach in breaches(gates.closes_its_generators, ".") if not breach.startswith(users)] == []


@pytest.mark.proves("S3", "K20", "K17")
def test_kernel_functions_take_time_as_an_argument_and_rows_in_order() -> None:
    found = {path.name: list(sqllint.lint(path.read_text(encoding="utf-8"))) for path in sorted(KERNEL.glob("*.sql"))}
    assert {name: each for name, each in found.items() if each} == {}
    assert len(found) > 20


def test_only_kernel_files_create_functions() -> None:
    elsewhere = [path for path in PACKAGE.rglob("*.sql") if path.parent != KERNEL]
    assert [path.name for path in elsewhere if list(sqllint.functions(path.read_text(encoding="utf-8")))] == []


@pytest.mark.parametrize(
    ("gate", "source"),
    [
        (gates.pure, "import asyncio"),
        (gates.pure, "from time import monotonic as m"),
        (gates.pure, "def f():\n    import os.path"),
        (gates.pure, "from datetime import datetime as d\nd.now()"),
        (gates.pure, "import datetime\nwhen = datetime.datetime.utcnow"),
        (gates.pure, "open('x')"),
        (gates.pure, "async def f(): ..."),
        (gates.pure, "def f(xs): return [x async for x in xs]"),
        (gates.declares_only, "class P:\n    async def f(self) -> int:\n        return 1"),
        (gates.declares_only, "from datetime import datetime\nnow = datetime.now"),
        (gates.closes_its_generators, "async def f(xs):\n    async for x in xs():\n        if x: break"),
        (gates.closes_its_generators, "async def f(xs):\n    async for x in xs(): yield x"),
        (gates.behind_the_seam, "from asyncio import sleep"),
        (gates.behind_the_seam, "import asyncio as a\nbell = a.Event()"),
        (gates.behind_the_seam, "import uuid"),
        (gates.behind_the_seam, "f = lambda loop: loop.time()"),
        (gates.behind_the_seam, "def f(loop): loop.run_in_executor(None, print)"),
        (gates.behind_the_seam, "try: f()\nexcept: pass"),
        (gates.behind_the_seam, "try: f()\nexcept (ValueError, BaseException): pass"),
    ],
)
def test_gate_finds_its_violations(gate: gates.Gate, source: str) -> None:
    assert list(gate(ast.parse(source))) != []


@pytest.mark.parametrize(
    ("gate", "source"),
    [
        (gates.pure, "from datetime import datetime, timedelta\ndef f(now: datetime) -> datetime: return now"),
        (gates.pure, "def f(call):\n    input = call.input\n    return input"),
        (gates.declares_only, "class P:\n    async def f(self) -> int:\n        '''One.'''\n        ..."),
        (gates.closes_its_generators, "async def f(xs):\n    async for x in xs(): print(x)"),
        (
            gates.closes_its_generators,
            "async def f(xs):\n    async with aclosing(xs()) as ys:\n        async for y in ys: yield y",
        ),
        (gates.behind_the_seam, "async def f(world): await world.sleep(1)"),
        (gates.behind_the_seam, "try: f()\nexcept BaseException:\n    g()\n    raise"),
    ],
)
def test_gate_accepts_valid_code(gate: gates.Gate, source: str) -> None:
    assert list(gate(ast.parse(source))) == []


FUNCTION = """\
-- tell: answers.
create function heliograph.tell(p_project text) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter(p_project);
    v_turn heliograph.agent_turns;
    v_all text[];
begin
    {body}
    return null;
end $$;
"""


def test_valid_function_passes_the_sql_lint() -> None:
    body = "select array_agg(x order by x) into v_all from heliograph.t; perform from t order by id for update;"
    assert list(sqllint.lint(FUNCTION.format(body=body))) == []


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("v_all := array[now()::text];", "calls now()"),
        ("perform current_timestamp;", "reads a clock"),
        ("if random() > 0.5 then return 1; end if;", "calls random()"),
        ("insert into t values (nextval('s'));", "calls nextval()"),
        ("perform from t where id = 1 for update;", "locks rows without order by"),
        ("select array_agg(x) into v_all from t;", "array_agg without order by"),
        ("for v_turn in select * from t loop null; end loop;", "loops over rows without order by"),
        ("select x into v_all from t limit 1;", "limit without order by"),
        ("execute 'select ' || p_project;", "a dynamic statement"),
        ("beginn nonsense;", "does not parse"),
    ],
)
def test_sql_lint_finds_its_violations(body: str, problem: str) -> None:
    assert problem in "\n".join(sqllint.lint(FUNCTION.format(body=body)))


def test_function_with_the_rights_of_its_caller_does_not_enter_a_project() -> None:
    enters = "    v_project constant text := heliograph._enter(p_project);\n"
    given = FUNCTION.format(body="return null;").replace(enters, "")
    assert "enters its project first" in "\n".join(sqllint.lint(given))
    assert not [*sqllint.lint(given.replace("set search_path", "security invoker set search_path"))]


@pytest.mark.parametrize(
    ("written", "instead", "problem"),
    [
        ("-- tell: answers.\n", "", "does not start with"),
        ("-- tell: answers.\n", "-- tell: answers.\n--   raises: nothing\n", "leave out the line `raises: nothing`"),
        ("-- tell: answers.\n", "-- tell: answers.\n--   locks:  nothing\n", "leave out the line `locks: nothing`"),
        ("    return null;\n", "    return null;\n" * 190, "divide it"),
        ("-- tell:", "-- told:", "does not start with"),
        ("set search_path = pg_catalog, pg_temp ", "", "sets its search_path"),
        (", pg_temp ", " ", "sets its search_path"),
        ("    v_project constant text := heliograph._enter(p_project);\n", "", "enters its project first"),
        ("v_project constant", "v_early text := 'x'; v_project constant", "enters its project first"),
        ("p_project text", "p_run_id text", "takes p_project first"),
        ("p_project text", "p_project text, p_now timestamptz", "_enter_at(p_project, p_now)"),
    ],
)
def test_sql_lint_reads_the_header(written: str, instead: str, problem: str) -> None:
    assert problem in "\n".join(sqllint.lint(FUNCTION.format(body="null;").replace(written, instead)))


def test_sql_lint_allows_the_clock_only_in_a_documented_wrapper() -> None:
    wrapper = """\
-- report_result: reports now.
create function heliograph.report_result(p_project text) returns text
    language sql set search_path = pg_catalog, pg_temp as $$
    select heliograph._enter(p_project);
    select heliograph.report(p_project, {now}) $$;
"""
    assert list(sqllint.lint(wrapper.format(now="clock_timestamp()"))) == []
    assert "calls now()" in "\n".join(sqllint.lint(wrapper.format(now="now()")))
    other = wrapper.replace("report_result", "tell")
    assert "calls clock_timestamp()" in "\n".join(sqllint.lint(other.format(now="clock_timestamp()")))


def test_sql_lint_allows_one_guard_to_compare_with_the_clock() -> None:
    guard = """\
-- _enter_at: compares.
create function heliograph._enter_at(p_project text, p_now timestamptz) returns boolean language plpgsql as $$
begin
    return p_now < {clock};
end $$;
"""
    assert list(sqllint.lint(guard.format(clock="now()"))) == []
    assert "calls clock_timestamp()" in "\n".join(sqllint.lint(guard.format(clock="clock_timestamp()")))
    other = guard.replace("_enter_at", "_enter_near")
    assert "calls now()" in "\n".join(sqllint.lint(other.format(clock="now()")))
