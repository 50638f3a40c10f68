"""Check that the credentials of an agent exist, without reading them into a message."""

from __future__ import annotations

import os
from collections.abc import Sequence

from heliograph.errors import HeliographError
from heliograph.secrets import Resolver
from heliograph.tools.secrets import secret


def problem_of_credentials(names: Sequence[str], resolver: Resolver | None) -> str | None:
    """The first credential that is neither a secret of the application nor an environment variable; None if all exist."""
    for name in names:
        if os.environ.get(name):
            continue
        try:
            secret(name, resolver)
        except HeliographError as error:
            return f"credential {name} is missing: set the environment variable {name}; {error.message}"
        except Exception as error:  # the application's resolver; its message may contain the value
            return f"credential {name} could not be looked up: the resolver of secrets raised {type(error).__name__}"
    return None
