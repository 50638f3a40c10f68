"""Check the syntax tree of each kernel function for forbidden constructs (docs/internals/kernel.md).

- No clock, no randomness, no sequence: time and ids are arguments, so that tests control the time and a retry
  reuses its ids.
- No dynamic statement: no value ever becomes SQL text (S3).
- Rows have a total order wherever it is visible or orders locks: `for update`, `limit`, loops,
  aggregates into arrays.
- A public function pins its search_path, takes p_project first, and enters that project before it does anything
  (S1, S2). A private one (`_name`) is only called by public ones and names its schema everywhere, so PostgreSQL can
  inline it.
- A comment directly above describes it. `raises:` and `locks:` lines appear only with content.
- It has at most 90 lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pglast.parser import ParseError, parse_plpgsql_json, parse_sql_json

UNREPEATABLE = frozenset(
    [
        "now",
        "clock_timestamp",
        "statement_timestamp",
        "transaction_timestamp",
        "timeofday",
        "random",
        "random_normal",
        "setseed",
        "gen_random_uuid",
        "uuidv4",
        "uuidv7",
        "nextval",
        "currval",
        "lastval",
    ]
)
# The clock that each of these functions may read, and no other function any. report_result is called by hand from any
# language, and passes the time on; _enter_at compares the time that a service names with the server's.
CLOCK_READERS = {"report_result": "clock_timestamp", "_enter_at": "now"}
ORDER_SHOWS = frozenset(["array_agg", "json_agg", "jsonb_agg", "string_agg", "xmlagg"])
# A set that is in order by itself: the elements of an array or a document, a series, the rounds of a batch.
ORDERED_SOURCES = frozenset(
    ["unnest", "generate_series", "jsonb_array_elements", "jsonb_array_elements_text", "_rounds"]
)
EMPTY_LINE = re.compile(r"^-- +(raises|locks): +nothing\b", re.MULTILINE)
LINES_MAX = 90
# before any other initial value is computed: what runs before it runs in no project
ENTERS = r"\s*(#variable_conflict use_column\s+)?(declare\s+v_project constant text := |select )heliograph\.{};"
ENTER, ENTER_AT = "_enter(p_project)", "_enter_at(p_project, p_now)"
CLOCKS = re.compile(r"SVFOP_(CURRENT_(TIME|DATE)|LOCALTIME)")


@dataclass(frozen=True, slots=True)
class Function:
    """One `create function`. comment: the block of lines directly above it."""

    name: str
    line: int
    language: str
    body: str
    source: str
    comment: str
    parameters: tuple[str, ...]
    settings: frozenset[str]


def functions(sql: str) -> Iterator[Function]:
    """Parse the functions that a file creates, in order. Raises ParseError where PostgreSQL would."""
    raw = sql.encode()
    for entry in json.loads(parse_sql_json(sql))["stmts"]:
        create = entry["stmt"].get("CreateFunctionStmt")
        if create is None:
            continue
        start = entry.get("stmt_location", 0)  # in bytes, after the comment above
        before = raw[:start].decode()
        options = {each["DefElem"]["defname"]: each["DefElem"].get("arg", {}) for each in create["options"]}
        yield Function(
            name=create["funcname"][-1]["String"]["sval"],
            line=before.count("\n") + 1,
            language=options["language"]["String"]["sval"],
            body=options["as"]["List"]["items"][0]["String"]["sval"],
            source=raw[start : start + entry["stmt_len"]].decode() if "stmt_len" in entry else raw[start:].decode(),
            comment=last_comment(before),
            parameters=tuple(each["FunctionParameter"].get("name", "") for each in create.get("parameters", ())),
            settings=frozenset(
                each["DefElem"]["arg"]["VariableSetStmt"]["name"]
                for each in create["options"]
                if each["DefElem"]["defname"] == "set"
            ),
        )


def last_comment(text: str) -> str:
    """Return the `--` lines at the very end of `text`."""
    found = re.search(r"(?:^--.*\n)+\Z", text, re.MULTILINE)
    return found[0] if found else ""


def lint(sql: str) -> Iterator[str]:
    """Yield each breach of the rules as `line: function: problem`."""
    try:
        for function in functions(sql):
            for problem in (*around(function), *inside(function)):
                yield f"{function.line}: {function.name}: {problem}"
    except ParseError as error:
        yield f"1: does not parse: {error}"


def around(function: Function) -> Iterator[str]:
    """Yield the problems of a function's comment, signature and settings."""
    if found := EMPTY_LINE.search(function.comment):
        yield f"leave out the line `{found[1]}: nothing`"
    if (lines := function.source.strip().count("\n") + 1) > LINES_MAX:
        yield f"has {lines} lines; divide it, at most {LINES_MAX} are allowed"
    if not function.comment.startswith(f"-- {function.name}: "):
        yield f"the comment right above does not start with `-- {function.name}: `"
    if not function.name.startswith("_"):
        if "set search_path = pg_catalog, pg_temp" not in function.source:
            yield "a public function sets its search_path to pg_catalog, pg_temp"
        if function.parameters[:1] != ("p_project",):
            yield "a public function takes p_project first"
        if "security invoker" in function.source:
            return  # each public function that it calls enters for itself, and checks the rights of the caller
        enters = ENTER_AT if "p_now" in function.parameters else ENTER
        if not re.match(ENTERS.format(re.escape(enters)), function.body):
            yield f"a public function enters its project first: v_project constant text := heliograph.{enters}"


def inside(function: Function) -> Iterator[str]:
    """Yield the problems of each statement and expression of a function's body."""
    clock = f"calls {CLOCK_READERS[function.name]}()" if function.name in CLOCK_READERS else None
    for problem in body_problems(function):
        if clock is None or not problem.startswith(clock):
            yield problem


def body_problems(function: Function) -> Iterator[str]:
    """Yield the problems of a body, regardless of the clock that the function may read."""
    if function.language == "sql":
        yield from statement_problems(json.loads(parse_sql_json(function.body)))
        return
    # The parser has no catalog, so a parameter or a variable of a row type is a record to it, and an array of rows one of texts.
    source = re.sub(r"\bheliograph\.\w+\[\]", "text[]", function.source)
    source = re.sub(r"\b([pv]_\w+\s+|returns (?:setof )?)heliograph\.\w+(?=[\s,;)])", r"\1record", source)
    for kind, node in walk(json.loads(parse_plpgsql_json(source))):
        if kind in {"PLpgSQL_stmt_dynexecute", "PLpgSQL_stmt_dynfors"}:
            yield "a dynamic statement"
        elif kind == "PLpgSQL_stmt_fors":
            yield from loop_problems(parse(node["query"]["PLpgSQL_expr"]))
        elif kind == "PLpgSQL_expr":
            yield from statement_problems(parse(node))


def parse(expression: dict[str, Any]) -> Any:
    """Parse one plpgsql expression; an assignment or a bare expression is parsed as `select …`."""
    query: str = expression["query"]
    mode = expression.get("parseMode", 0)
    if mode > 2:  # `name := value`
        query = re.split(r":?=", query, maxsplit=1)[1]
    return json.loads(parse_sql_json(query if mode == 0 else f"select {query}"))


def statement_problems(tree: Any) -> Iterator[str]:
    yield from unordered_aggregates(tree, is_ordered=False, is_locking=False)
    for kind, node in walk(tree):
        if kind == "SQLValueFunction" and CLOCKS.match(node["op"]):
            yield f"reads a clock: {node['op'].removeprefix('SVFOP_').lower()}"
        elif kind == "FuncCall" and called(node) in UNREPEATABLE:
            yield f"calls {called(node)}(): time and ids are arguments"
        elif kind == "SelectStmt" and "sortClause" not in node:
            if "lockingClause" in node:
                yield "locks rows without order by"
            elif "limitCount" in node:
                yield "limit without order by"


def unordered_aggregates(tree: Any, *, is_ordered: bool, is_locking: bool) -> Iterator[str]:
    """Yield aggregates that build arrays without an order, unless their rows are sorted or `_lock_…` sorts them."""
    if isinstance(tree, list):
        for item in tree:
            yield from unordered_aggregates(item, is_ordered=is_ordered, is_locking=is_locking)
    elif isinstance(tree, dict):
        for kind, node in tree.items():
            ordered, locking = is_ordered, is_locking
            if kind == "SelectStmt":
                ordered = comes_in_order(node.get("fromClause", ()))
            elif kind == "FuncCall":
                locking = locking or called(node).startswith("_lock_")
                sorts = "agg_order" in node or "agg_distinct" in node  # distinct values come sorted
                if called(node) in ORDER_SHOWS and not (sorts or ordered or locking):
                    yield f"{called(node)} without order by"
            yield from unordered_aggregates(node, is_ordered=ordered, is_locking=locking)


def loop_problems(tree: Any) -> Iterator[str]:
    """Yield loops over rows without an order, unless their one source is sorted."""
    select = tree["stmts"][0]["stmt"].get("SelectStmt", {})
    if "sortClause" not in select and not comes_in_order(select.get("fromClause", ())):
        yield "loops over rows without order by"


def comes_in_order(sources: Sequence[dict[str, Any]]) -> bool:
    """Whether the only source is sorted: a sorted subquery, or a function such as unnest()."""
    if len(sources) != 1:
        return False
    (kind, node), *_ = sources[0].items()
    if kind == "RangeSubselect":
        return "sortClause" in node["subquery"]["SelectStmt"]
    calls = [called(call) for inner, call in walk(node) if inner == "FuncCall"]
    return kind == "RangeFunction" and bool(calls) and calls[0] in ORDERED_SOURCES


def called(call: dict[str, Any]) -> str:
    """Return the name of the called function without its schema."""
    name: str = call["funcname"][-1]["String"]["sval"]
    return name


def walk(tree: Any) -> Iterator[tuple[str, Any]]:
    """Yield every keyed node of a JSON tree as (key, value), parents first."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield key, value
            yield from walk(value)
    elif isinstance(tree, list):
        for item in tree:
            yield from walk(item)
