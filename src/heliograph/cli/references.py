"""Complete the ids of runs and turns: a unique beginning of an id, or `@last` for the newest.

A complete id costs nothing: the command runs with it as it is, and only one that does not exist is looked up and tried again. A command
has no effect before it has found its run or turn.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from heliograph.cli.arguments import LAST
from heliograph.errors import HeliographError, InvalidInput, NotFound

_RUNS, _TURNS = ("run", "subject", "left", "right"), ("turn",)  # the options that hold ids
_CODES = ("unknown_run", "unknown_turn")
_LISTED = 5


def call_with_references(options: Namespace, call: Callable[[], int]) -> int:
    """Call a command; complete its references first for `@last`, and otherwise when one of them is no id."""
    if LAST in _values(options).values():
        _completed(options, None)
    try:
        return call()
    except NotFound as error:
        if error.code not in _CODES or not _completed(options, error):
            raise
    return call()


def _values(options: Namespace) -> dict[str, str]:
    found = {name: getattr(options, name, None) for name in (*_RUNS, *_TURNS)}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _completed(options: Namespace, error: HeliographError | None) -> bool:
    import asyncio  # late: `helio --help` needs none

    return asyncio.run(_complete(options, error))


async def _complete(options: Namespace, error: HeliographError | None) -> bool:
    """Replace references by ids. Returns whether one has changed. Raises NotFound (`unknown_run`, `unknown_turn`), InvalidInput (`ambiguous_id`)."""
    from heliograph.cli.existing_database import open_existing

    has_changed = False
    async with open_existing("run or turn") as reader:
        for name, value in _values(options).items():
            kind = "turn" if name in _TURNS else "run"
            if value == LAST:
                rows = await (reader.turns(limit=1) if kind == "turn" else reader.runs(1))
                ids = [str(getattr(row, f"{kind}_id")) for row in rows]
                if not ids:
                    raise NotFound(f"there is no {kind} yet, so {LAST} names none; helio run FILE.py:app starts one",
                                   code=f"unknown_{kind}")  # fmt: skip
            elif error is None:
                continue
            else:
                ids = await reader.ids_from(kind, value, _LISTED)
            if len(ids) > 1 and value not in ids:
                raise InvalidInput(f"{kind} {value} is the beginning of several ids: {', '.join(ids)}{' ...' if len(ids) == _LISTED else ''}",
                                   code="ambiguous_id", hint="write more of the id") from error  # fmt: skip
            if ids and ids[0] != value and value not in ids:
                setattr(options, name, ids[0])
                has_changed = True
    return has_changed
