"""Choose the alternative that the author of a manifest probably meant, where a value matches none of `anyOf` or `oneOf`."""

from __future__ import annotations

from typing import Any

_ALTERNATIVES = ("AnyOf", "OneOfNotValid")
_DISCRIMINATORS = ("Constant", "Enum")


def nearest_branch(error: Any) -> list[Any] | None:
    """Return the errors of the nearest alternative; None for another kind of error, and if no alternative has the type of the value.

    An alternative that rejects the type of the value itself is farthest. Then comes one whose constants reject a key of the value,
    because such a key names the alternative. Of the others, the one with the fewest errors is nearest.
    """
    if type(error.kind).__name__ not in _ALTERNATIVES:
        return None
    branches: list[list[Any]] = [branch for branch in error.kind.context if branch]
    of_type = [branch for branch in branches if not any(_rejects_type(each, error) for each in branch)]
    if not of_type:
        return branches[0] if len(branches) == 1 else None
    return min(
        of_type, key=lambda branch: (sum(type(each.kind).__name__ in _DISCRIMINATORS for each in branch), len(branch))
    )


def _rejects_type(error: Any, outer: Any) -> bool:
    return type(error.kind).__name__ == "Type" and list(error.instance_path) == list(outer.instance_path)


def types_of_alternatives(error: Any) -> list[str]:
    """Return the types that the alternatives expect, if all of them reject the type of the value; otherwise an empty list."""
    if type(error.kind).__name__ not in _ALTERNATIVES:
        return []
    found: list[str] = []
    for branch in error.kind.context:
        rejections = [each for each in branch if _rejects_type(each, error)]
        if not rejections:
            return []
        found += [name for each in rejections for name in each.kind.types]
    return list(dict.fromkeys(found))
