"""Thousands of hostile calls as a service login: documented errors, a valid database, and every command still works.

The functions are read from the catalog. The arguments are real ids and items of the project with some values replaced, so
most calls pass the first check.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from heliograph.ledger.pool import explain
from heliograph.ledger.roles import SERVICES
from heliograph.ledger.sqlstates import REJECTIONS
from heliograph.testing.kernel.row_guard import ROWS
from tests.kernel.filled import fill
from tests.kernel.foreign_calls import PARAMETERS, Function, Known, functions, known
from tests.kernel.kit import Kernel, encoded
from tests.kernel.waits import TOKEN
from tests.logins import connected, login

DOCUMENTED = {*REJECTIONS, "42501", "40001", "40P01", "55P03", "57014"}
GUARDED = {name for constraints in ROWS.values() for name in constraints}
MAY = "select p.proname from pg_proc p where p.pronamespace = 'heliograph'::regnamespace and has_function_privilege(p.oid, 'execute')"
TEXTS = [
    "", " ", "x", "null", "{}", "'; drop schema heliograph; --", "a\nb", "a:b", "a/b", "..", "ünïcode \U0001f600\u202e", "i" * 201, "i" * 5000,
    "-1", "1e9", "NaN", "infinity", "now", "0001-01-01", "sig_run_a_1", "sig_run_a_99999", "sig_run_a_" + "9" * 40, "%s", "$1", "\\", '"',
]  # fmt: skip
NUMBERS = [
    0,
    1,
    -1,
    2,
    3,
    100,
    2**31 - 1,
    -(2**31),
    2**31,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    0.5,
    -0.5,
    1e-7,
    1e15,
    1e300,
    31622400,
    86400,
]
HOSTILE: list[Any] = [
    None,
    True,
    False,
    [],
    {},
    [[]],
    [None],
    {"": ""},
    {"$blob": "x"},
    {"seq": 10**20},
    *TEXTS,
    *NUMBERS,
]
TIMES = ["infinity", "-infinity", "4713-01-01 BC", "294276-01-01", None]
INTEGERS = [None, 0, 1, -1, 10, 1000, 1001, 2**31 - 1, -(2**31)]
BIGINTS = [*INTEGERS, 2**63 - 1, -(2**63)]
FLOATS = [None, 0.0, -0.0, 1.0, 30.0, -1.0, 0.1, 86400.0, 1e300, float("inf"), float("-inf"), float("nan")]
LISTS: dict[str, list[Any]] = {
    "text[]": TEXTS, "bigint[]": BIGINTS, "double precision[]": FLOATS, "boolean[]": [None, True, False],
    "jsonb[]": [encoded(value) for value in HOSTILE],
}  # fmt: skip
LIST_CHANCE = 0.9  # of the value of a column that fits to the other columns of its call
# every command that looks, for the whole project and for one run or turn of it
COMMANDS = [
    ["run", "list"], ["turn", "list"], ["turn", "show", "turn_a"], ["turn", "children", "turn_d"], ["signal", "tail", "run_a"],
    ["signal", "tree", "run_a"], ["call", "list"], ["approval", "list"], ["callback", "list"], ["box", "show", "context_1"], ["db", "doctor"],
    ["db", "limits"], ["db", "wires"], ["db", "roles"],
]  # fmt: skip


class Attacker:
    """Draws calls from a seed."""

    def __init__(self, seed: int, project: str, ids: Known):
        self.random = random.Random(seed)
        self.project = project
        self.ids = ids

    def arguments(self, function: Function) -> list[Any]:
        given = Known(self._items(), self.ids.keys, self.ids.boxes, self.ids.at)  # of all columns of the call
        return [self._argument(function, name, kind, given) for name, kind in function.parameters]

    def _argument(self, function: Function, name: str, kind: str, known: Known) -> Any:
        chance = self.random.random()
        if name == "p_project":
            return self.project if chance < 0.97 else self.random.choice([None, "", "another", "p" * 201])
        if kind == "timestamp with time zone":
            near = datetime.now(UTC) + timedelta(seconds=self.random.uniform(-3600, 3600))
            return str(near) if chance < 0.9 else self.random.choice(TIMES)
        if kind in ("integer", "bigint", "double precision", "boolean"):
            drawn: dict[str, list[Any]] = {
                "integer": INTEGERS,
                "bigint": BIGINTS,
                "double precision": FLOATS,
                "boolean": [None, True, False],
            }
            return self.random.choice(drawn[kind]) if chance < 0.6 else PARAMETERS[name](self.project, self.ids)
        if kind == "text":
            return str(PARAMETERS[name](self.project, self.ids)) if chance < 0.5 else self.random.choice([None, *TEXTS])
        if kind in LISTS:
            if chance > LIST_CHANCE:
                return self.random.choice([None, [], [None], LISTS[kind], [LISTS[kind], LISTS[kind]]])
            column = function.given(name, self.project, known)
            return [self._bent_text(each) for each in column] if kind == "jsonb[]" else column
        assert kind == "jsonb", (name, kind)
        if chance < 0.1:
            return self.random.choice(HOSTILE)
        given = function.given(name, self.project, known)
        return self._bent(given) if chance < 0.9 else given

    def _items(self) -> list[Any]:
        return [dict(self.random.choice(self.ids.items)) for _ in range(self.random.choice([1, 1, 1, 2, 5]))]

    def _bent_text(self, value: str | None) -> str | None:
        return value if value is None or self.random.random() < LIST_CHANCE else encoded(self._bent(json.loads(value)))

    def _bent(self, value: Any) -> Any:
        """The same, with a value somewhere in it replaced, left out or added."""
        if isinstance(value, dict) and value and self.random.random() < 0.9:
            key = self.random.choice(sorted(value))
            if self.random.random() < 0.1:
                return {other: each for other, each in value.items() if other != key}
            return {**value, key: self._bent(value[key])}
        if isinstance(value, list) and value and self.random.random() < 0.9:
            place = self.random.randrange(len(value))
            return [self._bent(each) if n == place else each for n, each in enumerate(value)]
        return self.random.choice(HOSTILE)


def statement(function: Function) -> str:
    """A time goes as text: the driver sends no infinity, and no year before the first."""
    return function.call().replace("::timestamp with time zone", "::text::timestamptz")


async def attack(connection: asyncpg.Connection, attacker: Attacker, calls: int) -> Counter[str]:
    """Make this many calls; return how often each function succeeded, and how often each SQLSTATE was raised."""
    may = {row[0] for row in await connection.fetch(MAY)}
    targets = [function for function in await functions(connection) if function.name in may]
    seen: Counter[str] = Counter()
    surprises: dict[str, Any] = {}
    for _ in range(calls):
        function = attacker.random.choice(targets)
        arguments = attacker.arguments(function)
        try:
            await connection.fetch(statement(function), *arguments)
        except asyncpg.PostgresError as error:
            state, explained = str(error.sqlstate), explain(error, function.name)
            code = getattr(explained, "code", None)
            is_known = (
                state in DOCUMENTED
                and getattr(error, "constraint_name", None) not in GUARDED  # in production the row would be written
                and (state not in REJECTIONS or code == REJECTIONS[state][0] or "json" in str(code))
            )
            if not is_known:
                surprises.setdefault(f"{function.name} {state}", (str(error), arguments))
            seen[state] += 1
        else:
            seen[function.name] += 1
    assert surprises == {}
    return seen


def helio(url: str, project: str, command: list[str], home: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HELIOGRAPH_")}
    env = environment | {"HELIOGRAPH_DATABASE_URL": url, "HELIOGRAPH_HOME": str(home)}
    program = Path(sys.executable).with_name("helio")
    return subprocess.run([program, "--project", project, *command], env=env, text=True, check=False, timeout=90,
                          stdin=subprocess.DEVNULL, capture_output=True)  # fmt: skip


async def views_decode(connection: asyncpg.Connection, project: str) -> None:
    """Check that a client can read every row of every view: the driver's codecs raise for unrepresentable values."""
    await connection.execute("select set_config('heliograph.project', $1, false)", project)
    for (view,) in await connection.fetch(
        "select relname from pg_class where relnamespace = 'heliograph'::regnamespace and relkind = 'v' order by 1"
    ):
        for row in await connection.fetch(f"select * from heliograph.{view}"):
            assert not any(isinstance(value, datetime) and value.year in (1, 9999) for value in row.values()), (
                view,
                row,
            )


@pytest.mark.proves("S26", "S22")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "calls", [pytest.param(600, marks=pytest.mark.more), pytest.param(20_000, marks=pytest.mark.long)]
)
async def test_hostile_calls_of_a_service_break_no_reader(
    kernel: Kernel, shared_url: str, tmp_path: Path, calls: int
) -> None:
    kernel.now = datetime.now(UTC) - timedelta(minutes=5)
    await fill(kernel)
    ids = await known(kernel, TOKEN, 300.0)
    async with login(shared_url, kernel.project, services=SERVICES) as url, connected(url) as service:
        seen = await attack(service, Attacker(7, kernel.project, ids), calls)
        await views_decode(service, kernel.project)
    assert seen["22023"] > calls / 100
    assert sum(count for name, count in seen.items() if not name[:2].isdigit()) > calls / 5, seen
    assert await kernel.call("doctor", False) == []
    for command in COMMANDS:
        done = helio(shared_url, kernel.project, command, tmp_path)
        assert done.returncode in (0, 3), (command, done.stdout[-500:], done.stderr[-2000:])
        assert "Traceback" not in done.stderr


def test_documentation_lists_every_state_and_code() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    assert all(f"| `{state}` | `{code}` | {meaning} |" in text for state, (code, meaning) in REJECTIONS.items())
