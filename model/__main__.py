"""`python -m model [all | quick | full | ablate] [--trace]`: explore, print the figures, exit 1 when a claim fails."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from model.ablations import ABLATIONS, found
from model.breakers import BreakerModel
from model.buckets import BucketModel
from model.cases import CONFIGS, FULL, QUICK
from model.checker import Result, explore
from model.configs import Config
from model.locks import CLAIMS, ROWS, TURNS, LockModel, heads_then_runs
from model.properties import KernelModel

LOCKS = (
    ("locks", f"{len(TURNS)} transactions, heads then runs (K17)", TURNS),
    ("rows", f"{len(ROWS)} transactions, then rows of the outbox by key (K37)", ROWS),
    ("claims", f"{len(CLAIMS)} transactions, then the limits of the project", CLAIMS),
)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m model", description="The explicit-state model of the kernel.")
    parser.add_argument("what", nargs="?", default="all", choices=["all", "quick", "full", "ablate"])
    parser.add_argument("--trace", action="store_true", help="print the shortest trace of each ablation")
    args = parser.parse_args(argv)
    if args.what == "ablate":
        return 0 if ablate(args.trace) else 1
    return 0 if check({"all": CONFIGS, "quick": QUICK, "full": FULL}[args.what]) else 1


def check(configs: Iterable[Config]) -> bool:
    """Explore each configuration under all rules; True when every property holds in every one."""
    results = []
    print(f"{'config':<8}{'states':>11}{'transitions':>13}{'seconds':>9}  verdict")
    for cfg in configs:
        results.append(explore(KernelModel(cfg)))
        print_result(cfg.name, cfg.about, results[-1])
    for name, about, transactions in LOCKS:
        results.append(explore(LockModel(heads_then_runs, transactions)))
        print_result(name, about, results[-1])
    results.append(explore(BreakerModel()))
    print_result("breaker", "4 callers of a circuit breaker, 2 of which die", results[-1])
    results.append(explore(BucketModel()))
    print_result("bucket", "4 callers of a token bucket, 1 of which dies", results[-1])
    states, transitions = sum(r.states for r in results), sum(r.transitions for r in results)
    print(f"{'sum':<8}{states:>11,}{transitions:>13,}{sum(r.seconds for r in results):>9.1f}")
    return all(result.holds for result in results)


def print_result(name: str, about: str, result: Result) -> None:
    verdict = "holds" if result.holds else "FAILS" if result.is_complete else "CUT SHORT"
    print(
        f"{name:<8}{result.states:>11,}{result.transitions:>13,}{result.seconds:>9.1f}  {verdict}: {about}", flush=True
    )
    for broken, trace in result.broken.items():
        print_trace(f"broken: {broken}", trace)
    for goal, stuck in result.stuck.items():
        print_trace(f"{goal}: {stuck.states:,} states from which the goal is out of reach", stuck.trace)


def ablate(is_tracing: bool) -> bool:
    """Switch rules off; True if each ablation breaks its property, and each redundant rule breaks none."""
    is_good = True
    print(f"{'rule':<10}{'states':>10}{'seconds':>9}{'steps':>7}  finding")
    for ablation in ABLATIONS:
        result = ablation.run()
        trace = found(ablation, result)
        finding = ablation.expect or f"nothing breaks: {ablation.why}"
        if trace is None:
            is_good = False
            finding = f"NOT AS EXPECTED ({finding}); broken: {sorted(result.broken)}, stuck: {sorted(result.stuck)}"
        steps = len(trace) if trace is not None and ablation.expect else "-"
        print(f"{ablation.rule:<10}{result.states:>10,}{result.seconds:>9.1f}{steps:>7}  {finding}", flush=True)
        if is_tracing and trace:
            print_trace("", trace)
    return is_good


def print_trace(title: str, trace: list[str]) -> None:
    if title:
        print(f"    {title}")
    for number, label in enumerate(trace, 1):
        print(f"    {number:>4}. {label}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
