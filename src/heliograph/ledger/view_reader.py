"""Read rows of the views of the ledger, and join the conditions on them."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from heliograph.ledger.decoding import MARK, decode
from heliograph.ledger.pool import Database

Row = TypeVar("Row", bound=msgspec.Struct)


class ViewReader:
    """Reads rows of the views of one project as structs. A base for classes that say which rows."""

    def __init__(self, database: Database, project: str):
        self._database = database
        self._project = project

    async def _rows(
        self,
        kind: type[Row],
        view: str,
        where: str,
        *args: object,
        order: str = "1",
        limit: int = 1000,
    ) -> list[Row]:
        columns = ", ".join(kind.__struct_fields__)
        # all identifiers come from the code; values are parameters
        query = f"select {columns} from heliograph.{view} where project_id = $1 and {where} order by {order} limit {int(limit)}"  # noqa: S608
        rows = await self._database.fetch(query, self._project, *args)
        return [_converted(row, kind) for row in rows]


def where_given(given: dict[str, object], first: int = 2) -> tuple[str, list[object]]:
    """Join the comparisons whose value is not None with `and`. Returns the condition and its values. first: the number of the first parameter."""
    used = {text: value for text, value in given.items() if value is not None}
    conditions = [f"{text}${n}" + ")" * (text.count("(") - text.count(")")) for n, text in enumerate(used, first)]
    return " and ".join(conditions) or "true", list(used.values())


def _converted(row: Any, kind: type[Row]) -> Row:
    """Convert a row to `kind`. Values that cannot be decoded become placeholders with the reason."""
    values = {k: decode(v) if isinstance(v, bytes) else v for k, v in row.items()}
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        documents = {k: {MARK: str(error)} for k, v in row.items() if isinstance(v, bytes)}
        return msgspec.convert({**values, **documents}, kind)
