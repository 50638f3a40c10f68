"""Rate limits of an application: how many calls, and how many tokens of a model, all workers may use together.

A limit is `10/s`, `600/m` or `1000/h`: a token bucket in the database, named by a kind and a name. Kinds: `tool` (also of
steps), `agent` (delegations to it), `model` and `model_tokens` (the name is a pattern of `models`), and `route`. The limit of
a tool or agent overrides that of the type of signal.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from heliograph.errors import InvalidInput
from heliograph.types import JsonObject, first_given

if TYPE_CHECKING:
    from heliograph.control.rates import RateLimit


@dataclass(frozen=True, slots=True)
class Rate:
    """The tokens that one call takes from a bucket: `amount`, of at most `count` in `seconds`."""

    kind: str
    name: str
    count: int
    seconds: int
    amount: int = 1

    def item(self) -> JsonObject:
        """Return the rate as the kernel's requests contain it."""
        return asdict(self)


def check_rate_limit(value: str | RateLimit | None, path: str) -> RateLimit | None:
    """Read the rate limit of a tool, an agent, a call or a model. Raises InvalidInput (`invalid_rate`)."""
    if value is None:
        return None
    from pydantic_core import PydanticCustomError  # slow to import; most applications have no limits

    from heliograph.control.rates import read_rate

    try:
        return read_rate(value)
    except PydanticCustomError as error:
        name = path.rpartition("/")[2]
        raise InvalidInput(f"{name} {error.message()}", code=error.type, path=path) from None


def rates_of(kind: str, name: str, *limits: RateLimit | None) -> tuple[Rate, ...]:
    """Return the rates of one call of this tool or agent: the first limit that is given, the narrowest setting first."""
    limit = first_given(*limits)
    return () if limit is None else (Rate(kind, name, limit.count, limit.seconds),)
