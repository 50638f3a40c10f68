"""`helio db grant|revoke|roles`: the roles and projects of each login."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, TypeVar

from heliograph.cli.existing_database import open_connection
from heliograph.cli.output import json_line, line, table
from heliograph.errors import InvalidInput
from heliograph.ledger.roles import SERVICES, Login, read_logins
from heliograph.ledger.roles import grant as grant_login
from heliograph.ledger.roles import revoke as revoke_login
from heliograph.ledger.roles import revoke_signals as revoke_patterns
from heliograph.signals.pattern import compile_pattern

T = TypeVar("T")


def grant(options: Namespace) -> int:
    services, projects = sorted(set(options.role or ()), key=SERVICES.index), getattr(options, "project", [])
    if not services and not projects:
        raise InvalidInput(
            "nothing to grant; give --role worker, api, reader or subscriber, or --project NAME, or both", code="usage"
        )
    patterns = _patterns(options, projects)
    _show(asyncio.run(_as_operator(lambda to: grant_login(to, options.login, services, projects, patterns))), options)
    return 0


def revoke(options: Namespace) -> int:
    projects = getattr(options, "project", None)
    if (patterns := _patterns(options, projects)) and projects is not None:
        _show(asyncio.run(_as_operator(lambda to: revoke_patterns(to, options.login, projects, patterns))), options)
    else:
        _show(asyncio.run(_as_operator(lambda to: revoke_login(to, options.login, projects))), options)
    return 0


def _patterns(options: Namespace, projects: object) -> list[str]:
    """The patterns of --signals. Raises InvalidInput for one that is invalid, and without a project."""
    patterns = [compile_pattern(text).text for text in options.signals]
    if patterns and not projects:
        raise InvalidInput(
            "--signals grants signals of a project; name it with --project", code="usage", path="--signals"
        )
    return patterns


def roles(options: Namespace) -> int:
    logins = asyncio.run(_as_operator(read_logins))
    if options.json:
        for login in logins:
            json_line("login", asdict(login))
    else:
        rows = [(login.name, _roles(login), _projects(login), _signals(login)) for login in logins]
        table(("LOGIN", "ROLES", "PROJECTS", "SIGNALS"), rows)
    return 0


async def _as_operator(do: Callable[[Any], Awaitable[T]]) -> T:
    """Call `do` with a connection to an existing database that has this program's schema version."""
    from heliograph.ledger.pool import explain

    async with open_connection() as (connection, _):
        try:
            return await do(connection)
        except Exception as error:
            raise explain(error, "the change of roles") from error


def _show(login: Login, options: Namespace) -> None:
    if options.json:
        json_line("login", asdict(login))
    else:
        line(f"login {login.name}: roles {_roles(login)}; projects {_projects(login)}; signals {_signals(login)}")


def _roles(login: Login) -> str:
    return "operator" if login.is_operator else ", ".join(login.services) or "none"


def _projects(login: Login) -> str:
    """Its projects. A login with a role and without a project is not bound to any, so it can use all."""
    if login.is_operator or (login.services and not login.projects):
        return "all"
    return ", ".join(login.projects) or "none"


def _signals(login: Login) -> str:
    """The signals that it may subscribe to. Logins that read whole logs need no grant."""
    if login.is_operator or set(login.services) - {"subscriber"}:
        return "all"
    found = [f"{project} {pattern}" for project, patterns in login.signals.items() for pattern in patterns]
    return ", ".join(found) or "none"
