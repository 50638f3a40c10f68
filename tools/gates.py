"""Check the syntax tree of a module for forbidden names: the floors' purity and the worker's seam.

Names are resolved through the module's own imports, so `from time import monotonic as m` is still
`time.monotonic`. Each gate yields `line: problem`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

Gate = Callable[[ast.Module], Iterator[str]]

Names = tuple[str, ...]

# Floors 0-3: no IO, no clock, no randomness, no concurrency.
IMPURE: Names = ("asyncio", "concurrent", "io", "os", "random", "secrets", "shutil", "socket", "subprocess")
IMPURE += ("tempfile", "threading", "time", "uuid")
READS_CLOCK = ("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today")
OPENS_FILE = ("open()", "input()", "print()", "pathlib.Path.cwd", "pathlib.Path.home")

# The runtime reaches time, chance and waiting through heliograph.world.seam alone (docs/internals/kernel.md).
# A dot at the end means everything below, brackets a builtin that is called.
PAST_THE_SEAM: Names = (*READS_CLOCK, "time.", "uuid.", "secrets.", "random.", "os.urandom", "threading.")
PAST_THE_SEAM += ("concurrent.", "asyncio.sleep", "asyncio.to_thread", "asyncio.Event", "asyncio.Queue")
PAST_THE_SEAM += ("asyncio.timeout", "asyncio.timeout_at", "asyncio.wait_for")
SEAM_METHODS = frozenset(["run_in_executor"])


def imports(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield (line, name in this module, full dotted name) of each import at any level."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                local = alias.asname or alias.name.partition(".")[0]
                yield node.lineno, local, alias.name if alias.asname else local
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.lineno, alias.asname or alias.name, f"{node.module}.{alias.name}"


def references(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, full dotted name) of every name that is read; passing `time.time` on is a use, too."""
    known = {local: full for _, local, full in imports(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and (name := dotted(node)) is not None:
            head, dot, rest = name.partition(".")
            yield node.lineno, known.get(head, head) + dot + rest
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in known:
            yield node.lineno, node.func.id + "()"


def dotted(node: ast.expr) -> str | None:
    """Return `a.b.c` for a chain of attributes on a plain name, else None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)) is not None:
        return f"{before}.{node.attr}"
    return None


def matches(name: str, patterns: Names) -> bool:
    return any(name.startswith(each) if each.endswith(".") else name == each for each in patterns)


def used(tree: ast.Module, patterns: Names) -> Iterator[str]:
    """Yield the uses and imports of names that match `patterns`."""
    found = {(line, name) for line, name in references(tree) if matches(name, patterns)}
    found |= {
        (line, full) for line, _, full in imports(tree) if matches(full, patterns) or matches(full + ".", patterns)
    }
    yield from (f"{line}: uses {name}" for line, name in sorted(found))


def pure(tree: ast.Module) -> Iterator[str]:
    """Check that a module is pure: no import with IO, no clock, no file, nothing that waits."""
    for line, _, full in imports(tree):
        if full.partition(".")[0] in IMPURE:
            yield f"{line}: imports {full}"
    yield from used(tree, READS_CLOCK + OPENS_FILE)
    yield from waits(tree)


def waits(tree: ast.Module) -> Iterator[str]:
    kinds = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)
    for node in ast.walk(tree):
        if isinstance(node, kinds) or (isinstance(node, ast.comprehension) and node.is_async):
            yield f"{getattr(node, 'lineno', 0)}: waits ({type(node).__name__})"


def declares_only(tree: ast.Module) -> Iterator[str]:
    """Check that a protocol module only declares: its `async def` contains a docstring or `...` alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef):
            if any(not is_declaration(each) for each in node.body):
                yield f"{node.lineno}: {node.name} has a body"
        elif isinstance(node, ast.AsyncFor | ast.AsyncWith | ast.Await):
            yield f"{node.lineno}: waits ({type(node).__name__})"
    yield from used(tree, READS_CLOCK + OPENS_FILE)


def is_declaration(statement: ast.stmt) -> bool:
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
        return False
    return statement.value.value is Ellipsis or isinstance(statement.value.value, str)


def closes_its_generators(tree: ast.Module) -> Iterator[str]:
    """Check that a loop which may end early closes the generator that it has made: `aclosing`, or `reply_stream` for a model's.

    The garbage collector closes an abandoned generator later, in any thread, and not in order with the generators that it reads.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFor) and isinstance(node.iter, ast.Call):
            ends = (ast.Break, ast.Return, ast.Yield)
            if any(isinstance(each, ends) for statement in node.body for each in ast.walk(statement)):
                yield f"{node.lineno}: may abandon {ast.unparse(node.iter)}"


def behind_the_seam(tree: ast.Module) -> Iterator[str]:
    """Check that a module uses the seam and lets crashes propagate: see docs/internals/kernel.md."""
    yield from used(tree, PAST_THE_SEAM)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in SEAM_METHODS:
            yield f"{node.lineno}: uses {node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "time":
            yield f"{node.lineno}: reads a loop's clock"
        elif isinstance(node, ast.ExceptHandler) and catches_everything(node):
            yield f"{node.lineno}: catches what only the process may catch"


def catches_everything(handler: ast.ExceptHandler) -> bool:
    """Whether a handler is a bare `except:`, or an `except BaseException` that does not raise again."""
    if handler.type is None:
        return True
    names = [node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)]
    return "BaseException" in names and not any(isinstance(node, ast.Raise) for node in ast.walk(handler))
