"""The transaction of one kernel call in memory, with a journal that undoes a rejected call.

Rows are dicts and tables are dicts of rows, so one journal of (container, key, previous value) undoes everything.
"""

from __future__ import annotations

from collections.abc import Hashable
from copy import copy
from typing import Any

from heliograph.testing.kernel.jsonb import SqlError
from heliograph.testing.kernel.tables import Project, Row, Table

_MISSING = object()


class Transaction:
    """One kernel call: the project's tables, the time in microseconds, and the rules taken out."""

    def __init__(self, tables: Project, now: int, bugs: frozenset[str], counters: dict[str, int], project: str = ""):
        self.tables = tables
        self.project = project
        self.now = now
        self.bugs = bugs
        self._counters = counters
        self._journal: list[tuple[dict[Any, Any], Hashable, Any]] = []

    def at(self, now: int) -> Transaction:
        """Return the same transaction at another time."""
        other = copy(self)
        other.now = now
        return other

    def next(self, counter: str) -> int:
        """An identity column's next value. As in PostgreSQL, a rollback does not return it."""
        self._counters[counter] = value = self._counters.get(counter, 0) + 1
        return value

    def last(self, counter: str) -> int:
        return self._counters[counter]

    def insert(self, table: Table, key: Hashable, row: Row) -> Row:
        """Insert a row. Raises 23502, 23505 or 23514."""
        table.check(row)
        if key in table:
            raise SqlError("23505", f"{table.name} has a row {key} already")
        self._journal.append((table, key, _MISSING))
        table.put(key, row)
        return row

    def offer(self, table: Table, key: Hashable, row: Row) -> bool:
        """Insert a row unless its key exists, like `on conflict do nothing`; return whether it is new. Raises 23502 or 23514."""
        table.check(row)
        if key in table:
            return False
        self.insert(table, key, row)
        return True

    def update(self, table: Table, row: Row, **values: Any) -> None:
        """Change columns, and check the row. Raises 23502 or 23514."""
        self.set(row, **values)
        table.check(row)

    def set(self, row: Row, **values: Any) -> None:
        """Change columns that no check reads."""
        for column, value in values.items():
            self._journal.append((row, column, row[column]))
            row[column] = value

    def delete(self, table: Table, key: Hashable) -> None:
        self._journal.append((table, key, table.take(key)))

    def savepoint(self) -> int:
        return len(self._journal)

    def rollback(self, savepoint: int = 0) -> None:
        while len(self._journal) > savepoint:
            container, key, before = self._journal.pop()
            if before is _MISSING:
                assert isinstance(container, Table)
                container.take(key)
            elif isinstance(container, Table):
                container.put(key, before)
            else:
                container[key] = before
