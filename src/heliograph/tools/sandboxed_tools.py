"""Tools that run in a sandbox: Python code that a model writes, and isolated functions of the application."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import json
import site
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heliograph.definitions.tool import Tool, check_tool
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput, ToolFailed
from heliograph.tools.sandbox import SandboxLimits, run_sandboxed
from heliograph.types import Json, JsonObject

_ERROR_MAX = 2000
_CODE_BYTES_MAX = 256 * 1024
_OURS = str(Path(__file__).resolve().parents[1])


def code_tool(
    name: str = "run_python", *, description: str = "", limits: SandboxLimits | None = None, network: bool = False,
    packages: bool = False, timeout_seconds: float = 30.0, **options: Any,
) -> Tool:  # fmt: skip
    """Define a tool that runs a model's Python code in a sandbox, and returns {exit_code, stdout, stderr}.

    If a limit of the sandbox ended the code, the result also contains `error`: the limit and the remedy. Each call starts
    empty, without the files and variables of earlier calls.

    network: the code may use the network. packages: the code may import installed packages, beside the standard library.
    options: those of `Tool`. Raises InvalidInput.
    """

    async def run(code: str) -> Json:
        if len(code.encode("utf-8", "surrogatepass")) > _CODE_BYTES_MAX:
            raise ToolFailed(
                f"the code has more than {_CODE_BYTES_MAX} bytes; run it in parts", code="payload_too_large"
            )
        folders = _packages() if packages else []
        ran = await run_sandboxed(
            {"code": code, "packages": folders}, limits or SandboxLimits(), folders, network=network
        )
        result: JsonObject = {"exit_code": ran.exit_code, "stdout": ran.stdout, "stderr": ran.stderr}
        return result if ran.error is None else {**result, "error": ran.error}

    text = description or (
        "Run a Python program, and return its exit code and output. It has the standard library, "
        f"{'the network' if network else 'no network'}, no files of this machine, and no state of earlier calls."
    )
    schema: JsonObject = {"type": "object", "required": ["code"], "properties": {"code": {"type": "string"}}}
    all_options: dict[str, Any] = {"effect": "once" if network else "pure", "trusted": not network, **options}
    return check_tool(Tool(name, run, text, schema, timeout_seconds=timeout_seconds, **all_options))


def place_of(function: Any) -> dict[str, Any]:
    """Return the module and name by which another process finds a function. Raises InvalidInput for a function without them."""
    qualname, module = getattr(function, "__qualname__", ""), sys.modules.get(getattr(function, "__module__", ""))
    if not inspect.isfunction(function) or "<" in qualname or module is None:
        raise InvalidInput(
            f"an isolated tool must be a function at the top of a module, so that another process can find it, not {safe_repr(qualname or repr_of(function))}",
            code="wrong_type", path="/tools",
        )  # fmt: skip
    top = sys.modules.get(module.__name__.partition(".")[0], module)
    folders = [str(Path(folder).resolve()) for folder in getattr(top, "__path__", ())]
    is_named = importlib.util.find_spec(module.__name__) is not None if module.__name__ != "__main__" else False
    file = str(Path(inspect.getfile(function)).resolve())
    return {
        "module": module.__name__, "qualname": qualname, "file": None if folders and is_named else file,
        "path": [str(Path(folder).parent) for folder in folders], "binds": folders or [file],
    }  # fmt: skip


async def call_isolated(
    function: Any, arguments: Mapping[str, Any], limits: SandboxLimits | None = None, *, network: bool = False
) -> Json:
    """Call a function of the application in a sandbox, and return its result. Raises ToolFailed with its exception."""
    place = place_of(function)
    binds = [*place.pop("binds"), *_packages(), _OURS]
    paths = [*place.pop("path"), str(Path(_OURS).parent)]
    spec = {**place, "path": paths, "packages": _packages(), "arguments": dict(arguments)}
    ran = await run_sandboxed(spec, limits or SandboxLimits(), binds, network=network)
    match _json_in(ran.stdout):
        case {"error": str(error)}:
            raise ToolFailed(safe_repr(error, _ERROR_MAX))
        case {"result": result}:
            return result
        case _ if ran.error is not None:
            raise ToolFailed(ran.error)
        case _:
            message = f"the function ended with exit code {ran.exit_code} and without a result: {ran.stderr[-500:]}"
            raise ToolFailed(safe_repr(message, _ERROR_MAX))


def _json_in(text: str) -> Json:
    """The JSON that the sandboxed process printed; None for other text, and for JSON that is nested too deeply for Python."""
    with contextlib.suppress(ValueError, RecursionError):
        value: Json = json.loads(text)
        return value
    return None


def _packages() -> list[str]:
    return [folder for folder in [*site.getsitepackages(), sysconfig.get_paths()["purelib"]] if Path(folder).is_dir()]
