"""`python -m tests.simulator.keep` replaces the stale cases in seeds.txt, those that detect their mutant no longer.

The new case is the first seed that detects the mutant, with as few faults as possible. Cases of the runtime stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from heliograph.testing.kernel.backend import Backend
from heliograph.testing.mutants.catalog import MUTANTS, Mutant, hunt
from heliograph.testing.simulator.jobs import open_backend
from heliograph.testing.simulator.shrink import minimize
from heliograph.testing.simulator.simulate import Case, simulate
from tests.simulator.kept import PATH, read_kept

_SEEDS = range(2000)  # the hunt ends at the first that detects the mutant
_TRIES = 24


def keep() -> None:
    lines = PATH.read_text(encoding="utf-8").splitlines()
    lines = [line for line in lines if line.startswith(("#", "runtime ")) or not line]
    lines += _detected()
    PATH.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _detected() -> Iterator[str]:
    known = {kept.mutant: kept.case for kept in read_kept()}
    for mutant in MUTANTS.values():
        with open_backend("memory" if mutant.has_in_memory else "postgres", mutant) as backend:
            case = known.get(mutant.name)
            if case is None or not simulate(case, backend).violations:
                case = _smallest(mutant, backend)
            yield f"{mutant.name} {_written(case)}"


def _smallest(mutant: Mutant, backend: Backend) -> Case:
    found = hunt(mutant, backend, _SEEDS)
    if found is None:
        raise SystemExit(f"mutant {mutant.name} ({mutant.rules}) is not detected in {len(_SEEDS)} seeds")
    case, kind = found.case, found.kind

    def fails(faults: Sequence[str]) -> bool:
        return simulate(replace(case, faults=frozenset(faults)), backend).kind == kind

    faults = minimize(list(dict.fromkeys(found.faults)), fails, _TRIES)
    return replace(case, faults=frozenset(faults)) if fails(faults) else case


def _written(case: Case) -> str:
    """The seed and the faults; the rest is the default, or follows from the mutant."""
    kept = {"seed": case.seed} | ({} if case.faults is None else {"faults": sorted(case.faults)})
    return msgspec.json.encode(kept).decode()


if __name__ == "__main__":
    keep()
