"""The MCP servers that an agent's manifest declares: what they need, and the permission to start them."""

from __future__ import annotations

import asyncio
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.manifest.agent_tools import ServerReference, bound_name
from heliograph.manifest.document import Document
from heliograph.manifest.environment import expand, missing_in, values_in
from heliograph.manifest.problems import ManifestProblem, ManifestRejected
from heliograph.redaction import SECRET_PREFIX, keep_out
from heliograph.secrets import REFERENCE


def server_of(document: Document, reference: ServerReference, *, may_start: bool) -> Any | ManifestProblem:
    """Return an MCP server that a manifest declares, or the problem of what it lacks.

    may_start: whether the operator permits that it is started, or reached at its URL. Only then are variables of the environment read.
    Raises ManifestRejected for a server with malformed settings.
    """
    name = safe_repr(reference.name)
    if not may_start:
        what = (
            "is at a URL, and a manifest may not send there"
            if reference.command is None
            else "is a program, and a manifest may not start one"
        )
        return _lacks(document, reference, "missing_tool", f"the MCP server {name} {what} by itself",
                      "allow it with --start-servers, or bind its tools with --tools", reference.name)  # fmt: skip
    command, env, headers = list(reference.command or ()), reference.env, reference.headers
    texts = [*command, *env.values(), *headers.values(), reference.url or ""]
    if (variable := _missing_variable(texts)) is not None:
        return _lacks(document, reference, "missing_credential", f"the MCP server {name} needs the environment variable {variable}",
                      f"set {variable}", variable)  # fmt: skip
    for text in texts:
        keep_out(*values_in(text, os.environ))
    env, headers = ({key: expand(text, os.environ) for key, text in given.items()} for given in (env, headers))
    command = [expand(part, os.environ) for part in command]
    if command and shutil.which(command[0], path=env.get("PATH")) is None:
        written = (reference.command or ("",))[0]
        return _lacks(document, reference, "missing_tool", f"the MCP server {name} is the program {safe_repr(written)}, which is not "
                      "installed here", f"install {safe_repr(written)}, or bind its tools with --tools", reference.name)  # fmt: skip
    return _made(document, reference, command, env, headers)


def offered_names(server: Any) -> frozenset[str]:
    """Start a server, and return the names of its tools, in all of their spellings. Raises the errors of `open_tools`."""
    with ThreadPoolExecutor(1) as threads:  # the caller may run in an event loop
        return threads.submit(lambda: asyncio.run(_offered(server))).result()


async def _offered(server: Any) -> frozenset[str]:
    from heliograph.tools.restricted_server import names_of

    async with server.open_tools() as tools:
        return frozenset(bound_name(name) for tool in tools for name in names_of(server, tool))


def _lacks(
    document: Document, reference: ServerReference, code: str, message: str, hint: str, binding: str
) -> ManifestProblem:
    return replace(document.problem(code, message, reference.pointer, hint), binding=binding)


def _made(
    document: Document, reference: ServerReference, command: list[str], env: dict[str, str], headers: dict[str, str]
) -> Any:
    from heliograph.tools.mcp import MCPServer  # slow to import

    url = None if reference.url is None else expand(reference.url, os.environ)
    try:
        return MCPServer(command or None, url, reference.name, env, headers, tools=reference.tools)
    except InvalidInput as error:
        message = (
            error.message if url == reference.url else "its URL is invalid"
        )  # a message shows the value of no variable
        raise ManifestRejected(
            [document.problem(error.code, message, reference.pointer, error.hint or "correct the server")]
        ) from None


def _missing_variable(texts: list[str]) -> str | None:
    """Return the first variable of the environment that the texts of a server need and that has no value."""
    for text in texts:
        if missing := missing_in(text, os.environ):
            return missing[0]
        for found in REFERENCE.finditer(text):
            variable = SECRET_PREFIX + found[1].upper().replace("-", "_")
            if not os.environ.get(variable):
                return variable
    return None
