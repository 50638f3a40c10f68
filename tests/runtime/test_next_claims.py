"""A commit that ends turns also claims the next ones, within the limits of any claim (decision 0126)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.errors import KernelRejected, StoreUnavailable
from heliograph.worker import claim_loop
from tests.runtime.kit import START, Rig
from tests.runtime.test_commits_of_works import counted

LINKS = 4


@pytest.fixture(autouse=True)
def no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Endings wait for no claim under way, so no worker of these tests claims without a reason."""
    monkeypatch.setattr(claim_loop, "_AGAIN_SECONDS", claim_loop.POLL_SECONDS)


def chain(links: int = LINKS) -> Heliograph:
    """Agents that wake each other, one after the other."""
    app = Heliograph("chain", reducers={"n": lambda old, new: (old or 0) + new})
    for n in range(links):
        woken_by = [f"link:{n - 1}"] if n else START
        app.agent(name=f"a{n}", activate_on=woken_by, emits=[f"link:{n}"], updates="n")(lambda ctx: 1)
    return app


class Calls:
    """Watches the kernel calls of a runtime. `spoil` may raise an error before or after a call."""

    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch, spoil: Any = None):
        self.made: list[tuple[str, tuple[Any, ...], Any]] = []
        self._call, self._spoil = rig.runtime.world.call, spoil
        monkeypatch.setattr(rig.runtime.world, "call", self)

    async def __call__(self, function: str, *args: Any) -> Any:
        if self._spoil is not None:
            self._spoil(function, args, None)
        answer = await self._call(function, *args)
        self.made.append((function, args, answer))
        if self._spoil is not None:
            self._spoil(function, args, answer)
        return answer


async def test_chain_of_agents_makes_one_commit_and_one_round_trip_per_turn(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes, calls = counted(rig), Calls(rig, monkeypatch)
    run_id = await rig.start(chain())
    async with rig.serving(chain()):
        await rig.ended(run_id)
    assert writes.of_items == ["start_runs", "claim", *["finish_and_claim"] * (LINKS - 1), "finish"]
    assert [name for name, _, answer in calls.made if name == "claim" and answer] == ["claim"]


def fanned(turns: int, inside: list[int], most: list[int]) -> Heliograph:
    """Agents that all start with the run; `most` gets the number of those that run at the same time."""
    app = Heliograph("fanned", reducers={"n": lambda old, new: (old or 0) + new})
    for n in range(turns):

        @app.agent(name=f"a{n}", activate_on=START, updates="n")
        async def one(_: Context) -> int:
            inside.append(1)
            most.append(len(inside))
            await asyncio.sleep(0)
            inside.pop()
            return 1

    return app


async def test_full_worker_claims_with_its_endings_and_never_has_more_turns_than_slots(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, most = Calls(rig, monkeypatch), list[int]()
    assert (await rig.run(fanned(6, [], most), concurrency=2)).state == {"n": 6}
    carried = [(args[4], len(answer["claimed"])) for name, args, answer in calls.made if name == "finish_and_claim"]
    assert sum(claimed for _, claimed in carried) >= 1
    assert max(limit for limit, _ in carried) <= 2
    assert max(most) <= 2


async def test_claim_that_fails_does_not_undo_the_endings(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[Any] = []

    def without_claim(function: str, args: Any, answer: Any) -> None:
        if function == "finish_and_claim" and answer is None:
            failed.append(args[1][0]["turn_id"])
            raise KernelRejected("the claimed turns have over 256 MB of JSON (54000)")

    calls = Calls(rig, monkeypatch, without_claim)
    assert (await rig.run(chain())).state == {"n": LINKS}
    finished = [args[1][0]["turn_id"] for name, args, _ in calls.made if name == "finish"]
    assert failed
    assert [turn_id for turn_id in finished if turn_id in failed] == failed


async def test_lost_reply_repeats_the_endings_and_the_claimed_turn_returns_with_its_lease(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[Any] = []

    def lose_reply(function: str, _args: Any, answer: Any) -> None:
        if function == "finish_and_claim" and answer is not None and not lost:
            lost.append(answer)
            raise StoreUnavailable("the reply was lost")

    calls = Calls(rig, monkeypatch, lose_reply)
    assert (await rig.run(chain(), lease_seconds=0.3)).state == {"n": LINKS}
    again = next(answer for name, _, answer in calls.made if name == "finish")
    assert [row["outcome"] for row in again] == ["duplicate"]
    (claimed,) = lost[0]["claimed"]
    leases = await rig.fetch(
        "select turn_epoch from heliograph.leases where agent_turn_id = $1 order by turn_epoch", claimed["turn_id"]
    )
    assert len(leases) == 2


async def test_stopping_worker_claims_nothing_with_its_endings(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    app, calls = Heliograph("stopping"), Calls(rig, monkeypatch)
    entered, may_end = asyncio.Event(), asyncio.Event()

    @app.agent(activate_on=START, emits=["link:1"])
    async def first(_: Context) -> None:
        entered.set()
        await may_end.wait()

    app.agent(name="second", activate_on=["link:1"])(lambda ctx: None)
    run_id = await rig.start(app)
    async with rig.serving(app) as worker:
        await entered.wait()
        worker.stop()
        may_end.set()
        await rig.turn_of("second", "dispatched")
    async with rig.serving(app):
        await rig.ended(run_id)
    ended = [name for name, _, _ in calls.made if name.startswith("finish")]
    assert ended == ["finish", "finish"]


@pytest.mark.parametrize(("others", "slots", "offered"), [(0, 4, 2), (4, 6, 2), (1, 3, 2)])
async def test_claim_with_an_ending_keeps_to_the_share_of_its_project(
    rig: Rig, others: int, slots: int, offered: int
) -> None:
    """`others`: the running turns of the other project, beside one of this project that ends."""
    worker = rig.runtime.worker(chain().workflow, projects=["one", "two"], concurrency=slots)
    turns: Any = worker._running
    for n, project in enumerate(["one", *["two"] * others]):
        turns[project, f"turn_{n}"] = SimpleNamespace(services=SimpleNamespace(project=project))
    offer = worker._next_offer(worker.projects[0], 1)
    assert offer is not None
    assert offer.limit == offered
