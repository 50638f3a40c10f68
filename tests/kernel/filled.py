"""A project with rows in every table, for tests over all tables."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256

from tests.kernel.kit import Item, Kernel, draft, ending, run_item
from tests.kernel.waits import TOKEN, activated, begin, child, command, record, report, suspended

BREAKER = {
    "type": "tool_call", "target": "charge", "failure_threshold": 3, "success_threshold": 2, "timeout_seconds": 60,
    "half_open_max_calls": 3,
}  # fmt: skip
RATE = {"kind": "tool", "name": "search", "count": 2, "seconds": 1, "amount": 1}


def _note(claimed: Item, number: int) -> Item:
    """A signal that does not compress, so that 256 of them are worth a checkpoint."""
    return draft("noted", claimed["activation_id"], payload=sha256(bytes([number])).hexdigest())


async def fill(kernel: Kernel) -> None:
    """Something of everything: run_0 is pruned; run_b has ended, after a checkpoint, and run_d, with a child and a callback; in run_a the writer has done turn_a and turn_2, runs turn_3,
    with turn_4 queued behind it, and each of the three that it took has a note in its box; in run_c the writer is
    suspended in turn_c, which has a budget, on c2, with c1 resolved; context_1 holds a large card, and fork_1 is its fork. It has a subscription and a grant of signals, a worker, a wire, a circuit breaker with one failure, a rate limit, and memories:
    memory_0 of the writer, and memory_1 of the project."""
    await kernel.call("set_limits", {"card_bytes_max": 1000})
    while (await kernel.call("subscribe", "search", ["**"], "start", {}))["outcome"] == "opening":
        pass
    grant = "select heliograph.grant_signals($1, 'pg_monitor', '**', $2)"
    await kernel.connection.fetchval(grant, kernel.project, kernel.now)
    await kernel.call("declare_wire", "nats")
    secrets = [
        {"memory_id": f"memory_{n}", "agent": agent, "text": f"secret {n}"} for n, agent in enumerate(("writer", None))
    ]
    await kernel.call("remember", secrets)
    await kernel.call("beat", [{"worker": "worker-1", "interval_seconds": 30}])
    claimed = await kernel.running("run_0", "turn_0")
    await begin(kernel, claimed, "c1", "pure", circuit_breaker=BREAKER, rates=[RATE])
    await record(kernel, claimed, "c1", None, status="timeout", error={"code": "TOOL_TIMEOUT"})
    await kernel.finish(claimed, ends="success")
    await kernel.publish()
    kernel.wait(1)
    assert (await kernel.call("prune", kernel.now - timedelta(seconds=0.5), 10))["runs"] == 1
    recording: dict[str, object] = {"body": "{}", "name": "b"}
    begun = run_item("run_b", ["writer", "critic"], {"turn_b": "writer"})
    await kernel.call("start_runs", [{**begun, "recording": recording}])
    claimed = await kernel.claim_one()
    await kernel.append(claimed, *(_note(claimed, n) for n in range(256)))
    await kernel.call("finish", [{**ending(claimed, ends="success"), "recording": "{}"}])
    await suspended(kernel, child("d1", "critic", "turn_d1"), run_id="run_d", turn_id="turn_d", signals=activated("critic"),
                    limits={"callback_url": "https://hooks.example"})  # fmt: skip
    for ends in (None, "success"):
        claimed = await kernel.claim_one()
        await kernel.finish(claimed, version=(await kernel.run("run_d"))["version"], ends=ends)
        await kernel.sweep("reports")
    await suspended(
        kernel, command("c1"), command("c2"), run_id="run_c", turn_id="turn_c", limits={"budget": {"tokens": 100}}
    )
    await report(kernel, "turn_c", "c1", {"answer": 42}, token=TOKEN)
    large = {"card_id": "card_large", "kind": "note", "content": {"text": "".join(map(str, range(2000)))}}
    await kernel.call("put_boxes", [{"box_id": "context_1", "cards": [large]}])
    await kernel.call("fork_boxes", [{"box_id": "fork_1", "base_box_id": "context_1"}])
    claimed = await kernel.running()
    for n in (2, 3, 4):
        await kernel.enqueue("run_a", "writer", f"turn_{n}")
    for n in range(3):
        kernel.wait(1)
        note = {"card_id": f"card_note_{n}", "kind": "note", "content": {}}
        assert (await kernel.append(claimed, cards=[note]))["outcome"] == "ok"
        if n < 2:
            kernel.wait(1)
            assert (await kernel.finish(claimed, version=(await kernel.run("run_a"))["version"]))["outcome"] == "ok"
            claimed = await kernel.claim_one()
    assert (await kernel.call("take_signals", "search", "worker-1", 1, 30.0))["runs"]
