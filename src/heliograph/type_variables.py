"""The type variables of the public classes: the state of an application, the object that its code needs, the output of an agent.

Each has a default, so `Context`, `Heliograph` and `RunResult` are types by themselves, whose state may be anything.
"""

from __future__ import annotations

from typing import Any

from typing_extensions import TypeVar  # before Python 3.13, that of `typing` knows no defaults

AppState = TypeVar("AppState", default=Any)
AppDeps = TypeVar("AppDeps", default=Any)
State_co = TypeVar("State_co", covariant=True, default=Any)
Deps_co = TypeVar("Deps_co", covariant=True, default=Any)
State_contra = TypeVar("State_contra", contravariant=True, default=Any)
Deps_contra = TypeVar("Deps_contra", contravariant=True, default=Any)
Output = TypeVar("Output", default=str)  # a prompt agent without a type returns text
Output_co = TypeVar("Output_co", covariant=True, default=Any)
