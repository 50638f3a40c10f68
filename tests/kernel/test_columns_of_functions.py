"""The columns that Python derives from the declared requests are the parameters of the SQL functions, in the same order."""

from __future__ import annotations

from heliograph.ledger.kernel import KERNEL
from tests.kernel.kit import Kernel

_HEADER = """
    select array(select format_type(t, null) from unnest(coalesce(p.proallargtypes, p.proargtypes)) with ordinality a (t, n)
                  order by n) as types, p.proargnames as names, p.pronargs as taken
      from pg_proc p where p.pronamespace = 'heliograph'::regnamespace and p.proname = $1
"""
_SHORT = {"double precision": "float8", "double precision[]": "float8[]"}


async def test_columns_are_the_parameters_and_the_result_of_their_function(kernel: Kernel) -> None:
    functions = [function for function in KERNEL.values() if function.columns]
    assert len(functions) > 2
    for function in functions:
        header = await kernel.connection.fetchrow(_HEADER, function.name)
        assert header is not None
        types, taken = [_SHORT.get(each, each) for each in header["types"]], header["taken"]
        assert types[:taken] == [*function.types, "timestamp with time zone"], function.name
        parameters = [
            column and column.name for cast in function.casts for column in function.columns_at(cast) or [None]
        ]
        named = [(name, given) for name, given in zip(parameters, header["names"], strict=False) if name]
        for name, given in named:
            assert given in (f"p_{name}", f"p_claim_{name}"), function.name  # the second if two lists have the column
        assert len(named) >= len(function.columns)
        returned = list(zip(header["names"][taken:], types[taken:], strict=True))
        assert returned == [tuple(column) for column in function.returns], function.name
