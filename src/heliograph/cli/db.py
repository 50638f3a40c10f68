"""`helio db install|url|sql|doctor`: install, show and check the database."""

from __future__ import annotations

import asyncio
import os
import re
from argparse import Namespace
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from heliograph.cli.interrupts import graceful
from heliograph.cli.output import block, json_line, line, note
from heliograph.config import read_settings
from heliograph.errors import NotFound, Rejected
from heliograph.ledger.install import OWNER, SchemaState, check, read_owner, read_state, whole_sql
from heliograph.ledger.install import install as install_schema
from heliograph.ledger.roles import find_openings

if TYPE_CHECKING:
    from heliograph.ledger.pool import Database

VERSION_MIN = 15
# With these settings off, a crash of the server can undo commits: agents would run twice, or results be lost.
_DURABILITY = ["fsync", "full_page_writes", "synchronous_commit"]

_IN_LOGIN = re.compile(r"(//[^:@/?#]*):.*@")
_IN_QUERY = re.compile(r"([?&][^=&]*password[^=&]*=)[^&#]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    status: Literal["ok", "warning", "violated"]
    detail: str


def install(options: Namespace) -> int:
    done, state, owner = asyncio.run(_install())
    if options.json:
        json_line("installed", {"version": state.installed, "done": done, "owner": owner, "roles": owner == OWNER})
    else:
        for text in done or ["nothing to do"]:
            line(text)
        line(f"the schema is at version {state.installed}, {_owned(owner)}")
    return 0


def url(options: Namespace) -> int:
    """Start the embedded server if needed and print the URL. `--hold` keeps the server running until a signal."""
    asyncio.run(_url(options))
    return 0


def sql(options: Namespace) -> int:
    text = whole_sql()
    if options.json:
        json_line("sql", {"sql": text}, is_input=True)
    else:
        block(text)
    return 0


def doctor(options: Namespace) -> int:
    """Check the database and print the findings. Returns 1 if a check is violated; a warning returns 0."""
    findings = asyncio.run(_doctor())
    for finding in findings:
        if options.json:
            json_line("finding", asdict(finding))
        else:
            line(f"{finding.status.ljust(8)}  {finding.check}: {finding.detail}")
    return 1 if any(finding.status == "violated" for finding in findings) else 0


async def _install() -> tuple[list[str], SchemaState, str | None]:
    from heliograph.open_database import open_database  # late: `db sql` needs no driver

    async with open_database(read_settings(os.environ)) as database:
        version = await _server_version(database)
        if version < VERSION_MIN:
            raise Rejected(f"the server is PostgreSQL {version}; Heliograph needs {VERSION_MIN} or later",
                          code="server_version")  # fmt: skip
        connection = await database.acquire()
        try:
            return await install_schema(connection), await read_state(connection), await read_owner(connection)
        finally:
            await database.release(connection)


async def _url(options: Namespace) -> None:
    from heliograph.open_database import open_database, prepare_schema

    settings = read_settings(os.environ)
    async with open_database(settings) as database:
        is_embedded = settings.database_url is None
        if options.hold and is_embedded:  # for a program that connects by this URL alone
            await prepare_schema(database)
        shown_url = database.url if options.show_password else mask_password(database.url)
        if options.json:
            json_line("url", {"url": shown_url, "embedded": is_embedded}, shows_secrets=options.show_password)
        else:
            line(shown_url)
        if shown_url != database.url:
            note("the password is masked; helio db url --show-password shows it")
        if options.hold and is_embedded:
            with graceful(lambda _number: None) as stopping:
                note("the server runs until you press Ctrl-C")
                await stopping.wait()


async def _doctor() -> list[Finding]:
    from heliograph.cli.existing_database import missing_database
    from heliograph.open_database import open_database

    settings = read_settings(os.environ)
    if (lacking := missing_database(settings)) is not None:
        raise NotFound(lacking, code="no_data")
    async with open_database(settings) as database:
        version = await _server_version(database)
        findings = [_judge("server", version >= VERSION_MIN, f"PostgreSQL {version}", f"needs {VERSION_MIN} or later")]
        findings += await _durability(database)
        state = await _state_of(database)
        try:
            check(state)
        except Rejected as error:
            return [*findings, Finding("schema", "violated", error.message)]
        findings.append(Finding("schema", "ok", f"version {state.installed}"))
        findings += await _roles(database)
        findings += await _invariants(database, settings.project)
        findings += await _liveness(database, settings.project)
        return findings + await _workers(database, settings.project)


async def _durability(database: Database) -> list[Finding]:
    rows = await database.fetch("select name, setting from pg_settings where name = any($1) order by name", _DURABILITY)
    risky = [f"{row['name']} is {row['setting']}" for row in rows if row["setting"] in ("off", "local")]
    if risky:
        return [Finding("durability", "warning", f"{', '.join(risky)}: a crash of the server can lose committed work")]
    return [Finding("durability", "ok", "committed work survives a crash of the server")]


async def _roles(database: Database) -> list[Finding]:
    connection = await database.acquire()
    try:
        owner, openings = await read_owner(connection), await find_openings(connection)
    finally:
        await database.release(connection)
    if openings:
        return [Finding("roles", "violated", opening) for opening in openings]
    return [Finding("roles", "ok" if owner == OWNER else "warning", _owned(owner))]


async def _invariants(database: Database, project: str) -> list[Finding]:
    broken = await database.call("doctor", project, False)
    if not broken:
        return [Finding("invariants", "ok", f"all hold in project {project}")]
    return [Finding(each["check"], "violated", each["subject"]) for each in broken]


async def _liveness(database: Database, project: str) -> list[Finding]:
    """Report overdue work. It is a warning: most often no worker runs."""
    stuck = await database.call("liveness", project)
    if not stuck:
        return [Finding("liveness", "ok", f"nothing is overdue in project {project}")]
    return [Finding(each["check"], "warning", f"{each['subject']}, since {each['since']}") for each in stuck]


async def _workers(database: Database, project: str) -> list[Finding]:
    """Report workers whose health needs attention. Their turns are safe: other workers continue them."""
    from heliograph.cli.workers import warning_of
    from heliograph.ledger.reader import Reader

    warning = warning_of(await Reader(database, project).workers())
    return [] if warning is None else [Finding("workers", "warning", warning)]


async def _state_of(database: Database) -> SchemaState:
    connection = await database.acquire()
    try:
        return await read_state(connection)
    finally:
        await database.release(connection)


async def _server_version(database: Database) -> int:
    [row] = await database.fetch("select current_setting('server_version_num')::integer / 10000 as major")
    return int(row["major"])


def _owned(owner: str | None) -> str:
    """Describe the owner of the functions, and the reason if it is not the intended role."""
    if owner == OWNER:
        return "with roles"
    return f"without roles: login {owner} owns the schema and may not create roles; no other login may use it"


def mask_password(text: str) -> str:
    """A URL with its password masked. In doubt, it masks more than necessary."""
    return _IN_QUERY.sub(r"\1***", _IN_LOGIN.sub(r"\1:***@", text, count=1))


def _judge(name: str, is_ok: bool, detail: str, otherwise: str) -> Finding:
    return Finding(name, "ok" if is_ok else "violated", detail if is_ok else f"{detail}: {otherwise}")
