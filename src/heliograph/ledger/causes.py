"""Read why signals were emitted, what they caused, and why an agent did not run.

Each method returns the JSON of the SQL function of the same name, unchanged (`docs/reference/kernel.md`).
"""

from __future__ import annotations

from typing import Any

from heliograph.errors import NotFound, Rejected
from heliograph.ledger.pool import Database

PART = 100_000  # signals of one call of why_not
SKIPS_MAX = 10
NAMES_MAX = 1000

_NEXT_STEPS = {
    "unknown_signal": "helio signal tail shows the ids of signals",
    "pruned_signal": "helio signal tail --run RUN shows the rest of the log; to keep more, give helio db prune a longer --older-than, or workers a longer HELIOGRAPH_PRUNE_AFTER",
    "tree_too_deep": "begin at a signal that is nearer to the page, such as one of the page before",
    "unknown_run": "helio run list lists the newest",
    "pruned_run": "to keep runs for longer, give helio db prune a longer --older-than, or workers a longer HELIOGRAPH_PRUNE_AFTER",
}


class CausalReader:
    """Reads causes and effects of the signals of one project. Raises StoreUnavailable."""

    def __init__(self, database: Database, project: str):
        self._database = database
        self._project = project

    async def why(self, signal_id: str, limit: int) -> dict[str, Any]:
        """Read the causes of a signal, at most `limit` of them. Raises NotFound (`unknown_signal`, `pruned_signal`)."""
        return await self._ask("why", signal_id, limit)

    async def tree(self, subject: str, after: int, limit: int) -> dict[str, Any]:
        """Read a page of the effects of a signal, or of the signals of a run.

        Raises NotFound (`unknown_signal`, `pruned_signal`, `unknown_run`, `pruned_run`), Rejected (`tree_too_deep`).
        """
        return await self._ask("read_tree", subject, after, limit)

    async def graph(self, subject: str, after: int, limit: int) -> dict[str, Any]:
        """Read the causes and a page of the effects of a signal, or of the signals of a run. Raises the errors of `tree`."""
        return await self._ask("read_graph", subject, after, limit)

    async def why_not(self, run_id: str, agent: str) -> dict[str, Any]:
        """Read what a run records about the activations of an agent, part by part. Raises NotFound (`unknown_run`, `pruned_run`)."""
        found = await self._ask("why_not", run_id, agent, 0, PART)
        while found["next"] is not None:
            found = _joined(found, await self._ask("why_not", run_id, agent, found["next"], PART))
        return found

    async def _ask(self, function: str, *args: object) -> dict[str, Any]:
        answer: dict[str, Any] = await self._database.call(function, self._project, *args)
        if answer["outcome"] == "rejected":
            code = str(answer["code"])
            error = Rejected if code == "tree_too_deep" else NotFound
            raise error(f"{answer['message']} (project {self._project}); {_NEXT_STEPS[code]}", code=code)
        return answer


def _joined(before: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """The answer about both parts of a log. The newer one has the newer facts about the run."""
    names = {each["name"]: each for each in before["names"]}
    for each in part["names"]:
        earlier = names.get(each["name"])
        if earlier is not None or len(names) < NAMES_MAX:
            names[each["name"]] = each | {"count": each["count"] + (0 if earlier is None else earlier["count"])}
    skips = {"count": before["skips"]["count"] + part["skips"]["count"],
             "last": [*before["skips"]["last"], *part["skips"]["last"]][-SKIPS_MAX:]}  # fmt: skip
    return {
        **part, "names": [names[name] for name in sorted(names)], "skips": skips,
        "activations": before["activations"] + part["activations"], "terminating": before["terminating"] or part["terminating"],
    }  # fmt: skip
