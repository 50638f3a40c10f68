"""Secrets: stored as references, masked, and in no table, log or message (S13)."""

from __future__ import annotations

import base64
import copy
import io
import json
import logging
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import asyncpg
import pytest

from heliograph import Context, Heliograph, Secret, ToolContext, redaction, secret, tool
from heliograph.cli.errors import report
from heliograph.cli.logs import _JsonLines, _Lines
from heliograph.config import Settings
from heliograph.errors import InvalidInput, SetupError, ToolFailed
from heliograph.models import ScriptedModel
from heliograph.redaction import keep_keys_out, redacted_text
from heliograph.runtime import open_runtime
from heliograph.secrets import names_in
from heliograph.signals.values import to_json
from heliograph.tools.secrets import resolve_references, resolved
from tests.runtime.kit import START, Rig, until
from tests.runtime.loop_kit import agent, call, results

ODD = 'ab/+="é &%'
CANARIES = [f"canary-{n:02}-{ODD[n % 10]}zq{n * 7919}x{n}" for n in range(20)]


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has its own."""
    monkeypatch.setattr(redaction, "_kept", redaction._Kept())


@pytest.fixture
def canaries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    for n, value in enumerate(CANARIES):
        monkeypatch.setenv(f"HELIOGRAPH_SECRET_C{n}", value)
    return CANARIES


def spellings(value: str) -> list[str]:
    raw = value.encode()
    found = [value, json.dumps(value)[1:-1], repr(value)[1:-1], quote(value), quote(value, safe=""), raw.hex()]
    for prefix in (b"", b"a", b"ab"):  # as a part of something longer, such as user:password
        whole = base64.b64encode(prefix + raw).decode()
        found.append(whole[4:-4])
    return found


async def everything(rig: Rig) -> str:
    """All columns of all tables, and of all that was ever notified."""
    rows = await rig.fetch(
        "select relname from pg_class where relnamespace = 'heliograph'::regnamespace and relkind = 'r'"
    )
    found = []
    for row in rows:
        found += [str(each[0]) for each in await rig.fetch(f'select t::text from heliograph."{row["relname"]}" t')]
    return "\n".join(found)


@pytest.mark.more
@pytest.mark.proves("S13")
async def test_twenty_canaries_are_in_no_table_no_log_and_no_message(lone_rig: Rig, canaries: list[str]) -> None:
    rig, notifications, seen, error_messages = lone_rig, list[str](), list[Any](), list[str]()
    handler = logging.StreamHandler(logs := io.StringIO())
    logging.getLogger("heliograph").addHandler(handler)
    await rig.runtime.ledger.declare_wire("postgres")  # so that events are published
    listener = await asyncpg.connect(rig.url)
    for channel in ("heliograph_events", "heliograph_doorbell"):
        await listener.add_listener(channel, lambda *notification: notifications.append(str(notification[-1])))

    @tool(secrets=[f"c{n}" for n in range(20)], effect="pure")
    def use(key: str, nested: list[dict[str, str]]) -> Any:
        seen.append((key, nested))
        return {"used": key, "header": "Basic " + base64.b64encode(f"user:{key}".encode()).decode(), key: "as a key"}

    @tool(effect="pure", retries=1)
    def leak(n: int, ctx: ToolContext) -> None:
        raise [ValueError, ToolFailed][n % 2]("x" * 60 + ctx.secret(f"c{n}").reveal() + " was refused")

    model = ScriptedModel([
        [call("use", {"key": f"secret://c{n}", "nested": [{"a": f"secret://c{n}"}]}, f"u{n}") for n in range(20)],
        [call("leak", {"n": n}, f"l{n}") for n in range(20)], "used " + " ".join(canaries),
    ])  # fmt: skip
    app = Heliograph("leaky")
    app.prompt_agent(
        "asker", lambda ctx: f"The keys are {', '.join(secret(f'c{n}').reveal() for n in range(20))}", model=model,
        activate_on=START, updates="out", tools=[use, leak], emits=["asked:done"],
    )  # fmt: skip

    @app.agent(activate_on=["asked:done"], updates="more")
    async def more(ctx: Context) -> Any:
        ctx.progress(0.5, canaries[1])
        await ctx.step("step", lambda: canaries[2])
        await ctx.remember(f"remember {canaries[3]}", key=canaries[4])
        try:
            await ctx.step("raises", lambda: int(canaries[5]))
        except ToolFailed as error:
            error_messages.append(error.message)
        logging.getLogger("heliograph.worker").warning("logged %s", canaries[6])
        try:
            raise RuntimeError(canaries[7])
        except RuntimeError:
            logging.getLogger("heliograph.worker").exception("with a cause")
        raise RuntimeError(f"the end: {canaries[8]}")

    try:
        await rig.run(app, {"at": "the start"})
        await until(lambda: bool(notifications))
    finally:
        logging.getLogger("heliograph").removeHandler(handler)
        await listener.close()
    assert seen == [(value, [{"a": value}]) for value in canaries]  # the tools had the values
    assert "The keys are ***, ***" in model.requests[0].prompt
    assert not any(value in str(request) for request in model.requests for value in canaries)
    where = {"tables": await everything(rig), "log": logs.getvalue(), "messages": "\n".join(notifications)}
    assert "***" in where["tables"]
    assert "secret://c7" in where["tables"]
    assert "with a cause" in where["log"]
    assert ["***" in message for message in error_messages] == [True]
    hits = [(place, form) for place, text in where.items() for v in canaries for form in spellings(v) if form in text]
    assert hits == []


@pytest.mark.proves("S13")
async def test_unknown_secret_or_that_of_another_tool_is_not_resolved(rig: Rig, canaries: list[str]) -> None:
    got: list[str] = []

    @tool(secrets=["c0", "gone"], effect="pure")
    def mine(key: str) -> str:
        got.append(key)
        return "ok"

    @tool(effect="pure")
    def other(key: str) -> str:
        got.append(key)
        return "ok"

    app = agent(model := ScriptedModel([[
        call("mine", {"key": "secret://c1"}, "x1"), call("other", {"key": "secret://c0"}, "x2"),
        call("mine", {"key": "secret://gone"}, "x3"), call("mine", {"key": "see secret://c0"}, "x4"),
    ], "done"]), [mine, other])  # fmt: skip
    await rig.run(app)
    assert got == ["see secret://c0"]
    first, second, third, _ = results(model)
    assert "this tool may not use the secret c1" in first[1]
    assert "this tool may not use the secret c0" in second[1]
    assert "no secret gone" in third[1]


def test_secret_is_masked_until_it_is_revealed() -> None:
    made = Secret("open sesame", "door")
    assert [str(made), repr(made), f"{made}", f"{made!r:>9}", f"{[made]}"] == [
        "***",
        "***",
        "***",
        "      ***",
        "[***]",
    ]
    assert made.reveal() == "open sesame"
    assert made == Secret("open sesame") != Secret("another one")
    with pytest.raises(TypeError):
        copy.deepcopy(made)
    with pytest.raises(InvalidInput):
        to_json({"key": made})
    with pytest.raises(InvalidInput, match="fewer than 8"):
        Secret("short")


def test_resolver_precedes_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOGRAPH_SECRET_DB_KEY", "from the environment")
    assert secret("db-key").reveal() == "from the environment"
    assert secret("db-key", lambda name: f"resolved {name}").reveal() == "resolved db-key"
    assert secret("db-key", lambda _: None).reveal() == "from the environment"
    assert resolve_references("Bearer secret://db-key", None) == "Bearer from the environment"
    with pytest.raises(SetupError, match="set HELIOGRAPH_SECRET_NONE") as missing:
        secret("none")
    assert missing.value.code == "no_secret"
    with pytest.raises(InvalidInput):
        secret("../etc/passwd")


def test_whole_value_references_are_found_and_only_allowed_ones_are_resolved() -> None:
    given = {"a": "secret://one", "b": ["secret://two", {"c": "x secret://three"}]}
    assert names_in(given) == {"one", "two"}
    assert resolved(given, ["one"], lambda name: f"value of {name}") == {**given, "a": "value of one"}


@pytest.mark.proves("S13")
@pytest.mark.parametrize(
    ("variable", "value", "secret"),
    [
        ("OPENAI_API_KEY", "sk-0123456789abcdef", None),
        ("APIKEY", "sk-0123456789abcdef", None),
        ("CI_TOKEN", "0123456789abcdeF", None),
        ("SMTP_PASSWORD", "Tr0ub4dor", None),
        ("smtp_password", "correct horse battery", None),
        ("SIGNING_SECRET", "n0t-for-you", None),
        ("HELIOGRAPH_SECRET_CRM", "ordinary", None),
        ("PGPASSWORD", "swordfish", None),
        ("HELIOGRAPH_DATABASE_URL", "postgresql://me:s3same%2Fopen@db/app", "s3same/open"),
        ("HELIOGRAPH_DATABASE_URL", "postgresql://me:s3same%2Fopen@db/app", "s3same%2Fopen"),
        ("HELIOGRAPH_DATABASE_URL", "postgresql://db/app?user=me&password=swordfish", "swordfish"),
        ("HELIOGRAPH_NATS_URL", "nats://a:swordfish@one:4222,nats://a:starfish@two:4222", "starfish"),
        ("HELIOGRAPH_NATS_URL", "nats://t0ken-of-nats@one:4222", "t0ken-of-nats"),
        ("REDIS_URL", "redis://:swordfish@cache:6379/0", "swordfish"),
    ],
)
def test_environment_secrets_are_redacted_before_their_first_lookup(
    variable: str, value: str, secret: str | None
) -> None:
    keep_keys_out({variable: value})
    assert redacted_text(f"before {secret or value} after") == "before *** after"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PASSWORD", "a"),
        ("X_TOKEN", "short"),
        ("APP_SECRET", "production"),
        ("SORT_KEY", "published_at_descending"),
        ("PGPASSWORD", "postgres"),
        ("HELIOGRAPH_DATABASE_URL", "postgresql://heliograph:heliograph@localhost/heliograph"),
        ("HELIOGRAPH_DATABASE_URL", "postgresql://worker01:worker01@localhost/app"),
        ("EDITOR", "not-a-secret-1234"),
        ("HOMEPAGE", "https://somebody@example.com/path"),
        ("ODD_URL", "http://[::1"),
    ],
)
def test_short_and_ordinary_environment_values_are_not_redacted(variable: str, value: str) -> None:
    keep_keys_out({variable: value})
    assert redaction._kept.forms == set()


@pytest.mark.more
@pytest.mark.proves("S13")
async def test_passwords_and_unused_environment_secrets_are_in_no_record(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    password = urlsplit(database_url).password
    assert password
    monkeypatch.setenv("HELIOGRAPH_SECRET_UNUSED", CANARIES[0])
    monkeypatch.setenv("BILLING_API_KEY", CANARIES[1])
    leaked = f"{password} {CANARIES[0]} {CANARIES[1]}"
    app = Heliograph("careless")

    @app.agent(activate_on=START, updates="seen", emits=["leak:seen"])
    def careless(ctx: Context) -> str:
        ctx.emit("leak:seen", leaked)
        return f"{leaked} {os.environ['BILLING_API_KEY']}"

    @app.agent(activate_on=["leak:seen"])
    def failing(_: Context) -> None:
        raise RuntimeError(f"cannot connect to {database_url}, {leaked}")

    async with open_runtime(Settings(database_url=database_url)) as runtime:
        rig = Rig(runtime, database_url)
        assert repr(runtime.settings).count(password) == 0
        await rig.run(app)
        tables = await everything(rig)
    assert tables.count("*** *** ***") >= 3
    assert not any(form in tables for value in (password, *CANARIES[:2]) for form in spellings(value))


def test_command_line_redacts_its_own_errors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HELIOGRAPH_DEBUG", "1")
    keep_keys_out({"SMTP_PASSWORD": "Tr0ub4dor"})
    try:
        raise SetupError("no login with Tr0ub4dor", hint="not Tr0ub4dor")
    except SetupError as error:
        code = report(error, as_json=True)
    assert code == 1
    printed = capsys.readouterr()
    assert [printed.out.count("***"), "SetupError: no login with ***" in printed.err] == [2, True]
    assert "Tr0ub4dor" not in printed.out + printed.err


def test_redacted_error_of_the_command_line_is_still_readable() -> None:
    logs, made = io.StringIO(), Secret("open sesame")
    record = logging.LogRecord("heliograph.worker", logging.WARNING, "", 0, "it failed", (), None)
    try:
        raise ValueError(f"no {made.reveal()}")
    except ValueError as error:
        record.exc_info = (ValueError, error, error.__traceback__)
    assert redaction._guard(record)
    for formatter in (_Lines(), _JsonLines()):
        logs.write(formatter.format(record))
    assert logs.getvalue().count("ValueError: no ***") == 2
    assert "sesame" not in logs.getvalue()


def test_every_heliograph_logger_redacts() -> None:
    import re

    import heliograph

    root = Path(heliograph.__file__).parent
    used = {
        name
        for path in root.rglob("*.py")
        for name in re.findall(r'getLogger\("(heliograph[^"]*)"\)', path.read_text())
    }
    assert used <= set(redaction.LOGGERS)
