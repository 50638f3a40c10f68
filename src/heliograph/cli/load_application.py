"""Load the application that `FILE.py:app` names. Errors point to the line in the author's file.

The file runs as with `python FILE.py`: its folder comes first on the search path, so agents can import their neighbours.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from heliograph.cli.early_signals import VERBS
from heliograph.cli.errors import place_of
from heliograph.cli.files import read_file
from heliograph.error_text import safe_repr
from heliograph.errors import HeliographError, InvalidInput, NotFound

if TYPE_CHECKING:
    from heliograph.app import Heliograph

T = TypeVar("T")


def load_app(reference: str) -> Heliograph:
    """The application that `FILE.py:name` or `package.module:name` names, checked as a whole.

    Raises NotFound (`file_not_found`, `unknown_module`, `unknown_attribute`), InvalidInput (`invalid_reference`,
    `not_python`, `syntax_error`, `not_an_application`, those of files.read_file, or those of the application's own
    definitions), HeliographError (`import_failed`).
    """
    where, name, module = _load(reference, "application")
    from heliograph.app import Heliograph

    found = getattr(module, name, None)
    if isinstance(found, Heliograph):
        _explain(where, lambda: found.workflow)
        return found
    apps = [key for key, value in vars(module).items() if isinstance(value, Heliograph)]
    known = f"its applications: {', '.join(apps)}" if apps else "it has no application: app = Heliograph('name')"
    if not hasattr(module, name):
        nearest = get_close_matches(name, [*apps, *vars(module)], n=1)
        raise NotFound(f"{where} has no '{name}'; {known}", code="unknown_attribute",
                       hint=f"did you mean {where}:{nearest[0]}?" if nearest else None)  # fmt: skip
    kind = "class" if isinstance(found, type) else type(found).__name__
    raise InvalidInput(f"{where}:{name} is a {kind}, not a Heliograph application; {known}", code="not_an_application")


def load_object(reference: str) -> Any:
    """The object that `FILE.py:name` or `package.module:name` names. Raises the errors of `load_app`."""
    where, name, module = _load(reference, "object")
    if not hasattr(module, name):
        nearest = get_close_matches(name, vars(module), n=1)
        raise NotFound(f"{where} has no '{name}'", code="unknown_attribute",
                       hint=f"did you mean {where}:{nearest[0]}?" if nearest else None)  # fmt: skip
    return getattr(module, name)


def _load(reference: str, what: str) -> tuple[str, str, ModuleType]:
    """Load the file or module of a reference. Returns its place, the name in it, and the module."""
    where, _, name = reference.rpartition(":")
    if not where or not name.isidentifier():
        raise InvalidInput(f"'{safe_repr(reference)}' names no {what}; write FILE.py:{'app' if what == 'application' else 'name'}, the file "
                           "and the name in it", code="invalid_reference", hint=_hint_for(reference))  # fmt: skip
    is_file = where.endswith(".py") or "/" in where or Path(where).exists()
    return where, name, _load_file(Path(where)) if is_file else _load_module(where)


def file_of(reference: str) -> Path:
    """The file that `FILE.py:app` names. Raises InvalidInput (`invalid_reference`), NotFound (`file_not_found`)."""
    where, _, name = reference.rpartition(":")
    if not where.endswith(".py") or not name.isidentifier():
        raise InvalidInput(f"'{safe_repr(reference)}' names no application in a file; write FILE.py:app", code="invalid_reference",
                           hint=_hint_for(reference))  # fmt: skip
    read_file(Path(where))
    return Path(where)


def _hint_for(reference: str) -> str | None:
    if reference.endswith(".py"):
        return f"did you mean {reference}:app?"
    verbs = [f"{noun} {verb}" for noun, each in VERBS.items() for verb in each]
    nearest = get_close_matches(reference, [verb.partition(" ")[2] for verb in verbs], n=1)
    return f"did you mean helio {next(verb for verb in verbs if verb.endswith(nearest[0]))}?" if nearest else None


def _load_file(path: Path) -> ModuleType:
    source = read_file(path)
    if path.suffix != ".py":
        raise InvalidInput(
            f"{path} is not a Python file: its name does not end in .py", code="not_python", path=str(path)
        )
    _compile(source, path)
    path = path.resolve()
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    # the file must not replace a loaded module of the same name
    name = path.stem if path.stem not in sys.modules else f"helio_app_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and type hints look their module up
    loader = spec.loader
    _explain(str(path), lambda: loader.exec_module(module))
    return module


def _compile(source: bytes, path: Path) -> None:
    try:
        compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise _syntax_error(error, str(path)) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise InvalidInput(f"{path} is not valid Python: {error}", code="syntax_error", path=str(path)) from None


def _load_module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise NotFound(f"there is no file or module {safe_repr(name)}", code="file_not_found")
    if "" not in sys.path:
        sys.path.insert(0, "")  # like `python -m`; the script `helio` lies in another folder
    try:
        return _explain(name, lambda: importlib.import_module(name))
    except HeliographError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and cause.name and f"{name}.".startswith(f"{cause.name}."):
            raise NotFound(f"there is no module {name}; for a file, write its ending: {name}.py:app",
                           code="unknown_module") from None  # fmt: skip
        raise


def _explain(where: str, work: Callable[[], T]) -> T:
    """Run code of the application; an error that it raises names the line in the author's file."""
    try:
        return work()
    except SyntaxError as error:
        raise _syntax_error(error, where) from None
    except HeliographError as error:
        raise type(error)(
            f"{place_of(error) or where}: {error.message}", code=error.code, path=error.path, hint=error.hint
        ) from error
    except (Exception, SystemExit) as error:
        kind = "SystemExit (it ends the program)" if isinstance(error, SystemExit) else type(error).__name__
        raise HeliographError(f"{place_of(error) or where}: {kind}: {safe_repr(str(error), 300)}", code="import_failed",
                              hint="the file raised this error while it was loaded") from error  # fmt: skip


def _syntax_error(error: SyntaxError, where: str) -> InvalidInput:
    text = f": {error.text.strip()}" if error.text and error.text.strip() else ""
    place = f"{error.filename or where}:{error.lineno}"
    return InvalidInput(f"{place}: {error.msg}{safe_repr(text)}", code="syntax_error", path=place)
