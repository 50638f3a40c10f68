"""Replay one part of a recording: run the same code from the same inputs, and compare what it does."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from heliograph.agent_loop.model_agent_loop import ModelAgentLoop
from heliograph.errors import HeliographError
from heliograph.execution.packed_commit import as_jsonb
from heliograph.execution.project_services import ProjectServices
from heliograph.execution.recorded_inputs import with_tape
from heliograph.execution.recorded_world import RecordedWorld
from heliograph.execution.runner import TurnRunner
from heliograph.execution.tape import WholeTape, unrecorded, without_owner
from heliograph.ids import split_signal_id
from heliograph.json_differences import Difference, differences
from heliograph.reactive.react import react_to_pending, react_to_start
from heliograph.reactive.reaction import Reaction
from heliograph.reactive.workflow import Workflow
from heliograph.recording.compared_values import as_sent_now, plain
from heliograph.recording.detached_turn import no_harness
from heliograph.recording.divergence import Divergence, Kind, named_attempt
from heliograph.recording.policy import ReplayPolicy
from heliograph.recording.recorded_runs import RecordedRuns
from heliograph.recording.recording import Part, Recording
from heliograph.recording.replay_loop import ReplayLoop
from heliograph.recording.replay_world import ReplayedInputs, ReplayedLedger, ReplayWorld
from heliograph.recording.script import Key, Missing, Script, key_of_call
from heliograph.recording.step_arguments import ChangedArguments, StepArguments
from heliograph.records import Claimed, PendingRun, RunFailure
from heliograph.signals.model import Draft, Signal
from heliograph.tools.toolbox import Toolbox
from heliograph.turn.calls import CallRequest
from heliograph.turn.drafts import absolute_time, draft_items, parent_id, time_of
from heliograph.turn.interruptions import Interruption
from heliograph.turn.journal import call_label
from heliograph.types import Json, JsonObject

PROJECT = "replayed"  # of recordings without one
_MARKS = "/result/marks"  # of a model request, which is compared as a whole
_RELEASES = ("finish", "suspend", "defer")


class PartReplay:
    """The replay of one part. divergence: the first difference. signals: those that it gave again, by their positions.

    is_patient: see `Script`. varying: the steps whose arguments are not compared. changed: the first one with other arguments.
    """

    def __init__(
        self, recording: Recording, runs: RecordedRuns, part: Part, workflow: Workflow, policy: ReplayPolicy,
        varying: Collection[str] = (), *, is_patient: bool,
    ):  # fmt: skip
        self._recording = recording
        self._runs = runs
        self._part = part
        self._workflow = workflow
        self._policy = policy
        self._script = Script(part.entries, is_patient=is_patient)
        self._conflicts = {
            entry[1]
            for entry in part.entries
            if entry[0] == "answer" and isinstance(entry[2], dict) and entry[2].get("outcome") == "conflict"
        }
        self._arguments = StepArguments(
            signal for call in part.calls() if "first" in call[4] for signal in recording.signals_of(call[4])
        )
        self._varying = varying
        self.changed: ChangedArguments | None = None
        self._request: JsonObject | None = None
        self._agent: str | None = None
        self._run_id = _run_of(part.data) or recording.header.run_id
        self.divergence: Divergence | None = None
        self._doubt: Divergence | None = None
        self.signals: dict[int, Signal] = {}
        self.tape = WholeTape(part.name, part.data)

    def run(self) -> None:
        """Replay the part. Sets `divergence`."""
        try:
            if "claimed" in self._part.data:
                self._run_turn()
            else:
                self._run_reaction()
        except Missing as missing:
            self.missing(missing.args, None)
        except Exception as error:  # of a file that was edited, or of the application
            message = error.message if isinstance(error, HeliographError) else f"{type(error).__name__}: {error}"
            self._diverge("error", f"the part cannot be replayed: {message}")
        if self.divergence is None:
            self.divergence = self._doubt

    # ── Turns ──

    def _run_turn(self) -> None:
        claimed = msgspec.convert(as_jsonb(self._part.data["claimed"]), Claimed)
        self._agent = claimed.agent
        if claimed.agent not in self._workflow.agents:
            self._diverge("error", f"the application has no agent {claimed.agent} any more")
            return
        world = ReplayWorld(self._script, self, is_observed=bool(self._part.data.get("is_observed")))
        toolbox = Toolbox()
        services = ProjectServices(
            world, ReplayedLedger(world, str(self._part.data.get("project", PROJECT)), self._script, self), {claimed.target: self._workflow},
            inputs=ReplayedInputs(self._script, self, toolbox), toolbox=toolbox,
        )  # fmt: skip
        loop = ReplayLoop(self._is_waiting)
        self._loop = loop
        self._script.advance()
        try:
            self._task = loop.create_task(self._turn(claimed, services))
            loop.run_forever()
        finally:
            loop.drop()
        if self.divergence is None and not self._script.is_over and loop.problem is not None:
            self._diverge("error", loop.problem)
        if self.divergence is not None and loop.attempt is not None:
            self.divergence = named_attempt(self.divergence, loop.attempt)

    async def _turn(self, claimed: Claimed, services: ProjectServices) -> None:
        runner = TurnRunner(claimed, services, ModelAgentLoop(no_harness), with_tape(services, claimed, self.tape))
        runner.task = asyncio.current_task()
        self._script.on_stop = runner.stop

        def progress(payload: Any, at: str) -> None:
            draft = Draft("agent:progress", payload, claimed.agent, claimed.activation_id, datetime.fromisoformat(at))
            with unrecorded():
                runner.owned.inputs.progress(draft)
            runner.signals.add_urgent(draft)

        self._script.on_progress = progress
        try:
            await runner.run()
        except (HeliographError, Interruption, RecursionError) as error:
            if not self._script.is_over:
                self._diverge("end", f"the turn ends by {type(error).__name__}: {error}")

    def _is_waiting(self) -> bool:
        """Nothing is ready: give the next answer, or find out why none is due. Returns False to end the replay."""
        if self.divergence is not None or self._script.is_over:
            return False
        if self._script.advance() or self._loop.pass_time():
            return True
        entry = self._script.next_entry
        if entry is None:
            return False
        if self._script.skip_value():
            self._doubt = self._doubt or self._made("call", f"the code no longer reads {_named(entry)}")
            return True
        state = "ends" if self._task.done() else "waits"
        problem = "" if self._loop.problem is None else f"; {self._loop.problem}"
        self._diverge("end", f"the turn {state}, where the recording has {_named(entry)}{problem}")
        return False

    # ── Reactions ──

    def _run_reaction(self) -> None:
        data, world = self._part.data, ReplayWorld(self._script, self, is_observed=False)
        recorded = RecordedWorld(world, self.tape)
        if "pending" in data:
            pending = msgspec.convert(as_jsonb(data["pending"]), PendingRun)
            failure = None if data.get("failure") is None else msgspec.convert(data["failure"], RunFailure)
            reaction = react_to_pending(self._workflow, pending, recorded.now(), recorded.new_id, failure)
            self._compare_reaction("react", reaction)
        else:
            state: Any = data["state"]
            caller: Any = data["caller"]
            reaction = react_to_start(
                self._workflow, str(data["run_id"]), state, recorded.now(), recorded.new_id, caller
            )
            self._compare_reaction("start_runs", reaction)

    def _compare_reaction(self, function: str, reaction: Reaction) -> None:
        item: dict[str, Any] = {"signals": draft_items(reaction.drafts), "reaction": reaction.to_item()}
        if function == "react":
            item["version"] = reaction.version
        self.tape.called(function, item)
        self.compare_call(self._script.call(key_of_call(function, item)), item)

    # ── Comparison ──

    def compare_call(self, entry: Sequence[Any], item: Mapping[str, Any]) -> bool:
        """Compare the signals of a kernel call with the log, and the rest of it with its entry.

        A call that the kernel answered with a conflict wrote nothing: what counts is the next one.
        """
        if entry[1] in self._conflicts:
            return True
        place, drafts = entry[4], item.get("signals") or []
        if "first" in place:
            self._compare_signals(place, drafts)
        elif place and [draft["name"] for draft in drafts] != place["names"]:
            self._diverge("signal", "the call emits other signals", place["names"], [d["name"] for d in drafts], entry)
        if self.divergence is None and "first" in place and "reaction" in item:
            self._compare_run(entry, item)
        if self.divergence is None:
            recorded, replayed = as_sent_now(entry[2], entry[3]), plain(without_owner(item))
            if "reaction" in recorded:  # by an earlier version
                replayed |= plain({key: item[key] for key in ("version", "reaction") if key in item})
                replayed.pop("limits", None)
            if found := tuple(each for each in differences(recorded, replayed) if not each.path.startswith(_MARKS)):
                self._diverge("call", f"{entry[2]} commits something else", recorded, replayed, entry, found)
        return self.divergence is None

    def _compare_signals(self, place: Mapping[str, int], drafts: Sequence[Mapping[str, Any]]) -> None:
        first = place["first"]
        expected = self._recording.signals_of(place)
        for n in range(max(len(drafts), len(expected))):
            seq = first + n
            recorded = None if n >= len(expected) else self._shape(expected[n])
            replayed = None if n >= len(drafts) else self._shape_of_draft(drafts, n, first)
            if recorded is None or replayed is None:
                lone: Any = replayed if recorded is None else recorded
                word = "one more signal" if recorded is None else "one signal less"
                self._diverge("signal", f"there is {word}, {lone['name']}", recorded, replayed, seq=seq)
                return
            if found := self._policy.counted(recorded, tuple(differences(recorded, replayed))):
                self._diverge("signal", f"{recorded['name']} differs", recorded, replayed, None, found, seq)
                return
            self.signals[seq] = expected[n]

    def _compare_run(self, entry: Sequence[Any], item: Mapping[str, Any]) -> None:
        """Compare the run that a committed reaction makes with the one that the next part has read."""
        recorded, replayed = self._runs.compared(self._run_id, item.get("version", 0), item["reaction"])
        if found := tuple(differences(recorded, replayed)):
            self._diverge("call", f"the run after {entry[2]} differs", recorded, replayed, entry, found)

    def _shape(self, signal: Signal) -> JsonObject:
        is_untrusted = signal.seq in self._recording.untrusted
        return {"name": signal.name, "payload": signal.payload, "agent": signal.agent, "parent": signal.parent,
                "at": signal.timestamp.isoformat(), "trust": "untrusted" if is_untrusted else "trusted"}  # fmt: skip

    def _shape_of_draft(self, drafts: Sequence[Mapping[str, Any]], n: int, first: int) -> JsonObject:
        draft, at = drafts[n], absolute_time(drafts, n)
        return {"name": draft["name"], "payload": plain(draft.get("payload", {})), "agent": draft.get("agent"),
                "parent": parent_id(self._run_id, first, draft.get("parent")), "at": None if at is None else time_of(at).isoformat(), "trust": draft.get("trust", "trusted")}  # fmt: skip

    def compare_request(self, name: str, recorded: JsonObject, replayed: JsonObject) -> bool:
        """Compare a model request with the recorded one."""
        self._request = {"model": name, **replayed}
        if self._policy.accepts_prompts:
            return True
        now = plain(replayed)
        if found := tuple(differences(recorded, now)):
            self._diverge("request", f"{name} would receive another request", recorded, now, None, found)
        return self.divergence is None

    def compare_step(self, request: CallRequest) -> bool:
        """Compare the arguments of a step with the hash that the log has of them."""
        if request.call_id not in self._varying and (found := self._arguments.changed(request)) is not None:
            self.changed = self.changed or found
            self._diverge(
                "arguments",
                found.message,
                found.difference.left,
                found.difference.right,
                None,
                (found.difference,),
                found.seq,
            )
        return self.divergence is None

    def missing(self, what: Key, detail: Json) -> None:
        """The code does something that the recording does not have."""
        if "claimed" in self._part.data:
            if self._script.is_over:
                return  # the part has ended with its last call
            if what[0] == "sleep" and not any(call[2] in _RELEASES for call in self._part.calls()):
                return  # the worker died: it recorded no pause that began after its last commit
        if what[0] == "model":
            self._request = detail if isinstance(detail, dict) else None
            self._diverge("request", f"the recording has no reply of {what[1]} for this request; a replay calls no model, so record "
                          "the run again, or restore the code that made fewer requests", None, detail)  # fmt: skip
        elif what[0] in ("now", "monotonic", "id", "cost", "view", "credentials", "harness"):
            self._doubt = self._doubt or self._made("call", f"the code reads one more {what[0]} than the recording has")
        elif what[0] == "call" and isinstance(detail, dict):
            item = plain(without_owner(detail))
            self._diverge("call", f"the recording has no {_kernel_call(str(what[1]), item)}", None, item)
        else:
            named = " ".join(str(each) for each in what if each is not None)
            self._diverge("call", f"the recording has no {named}", None, detail)

    def _diverge(
        self, kind: Kind, message: str, recorded: Any = None, replayed: Any = None, entry: Sequence[Any] | None = None,
        found: tuple[Difference, ...] = (), seq: int | None = None,
    ) -> None:  # fmt: skip
        if self.divergence is None:
            self.divergence = self._made(kind, message, recorded, replayed, entry, found, seq)

    def _made(
        self, kind: Kind, message: str, recorded: Any = None, replayed: Any = None, entry: Sequence[Any] | None = None,
        found: tuple[Difference, ...] = (), seq: int | None = None,
    ) -> Divergence:  # fmt: skip
        return Divergence(kind, self._part.name, self._agent, self._next_seq(entry) if seq is None else seq, message, recorded,
                          replayed, found, self._request)  # fmt: skip

    def _next_seq(self, entry: Sequence[Any] | None) -> int:
        """The position of the signal that would follow: of this call, or of the next one that the part has not reached."""
        places = [call[4]["first"] for call in self._part.calls() if "first" in call[4]]
        if entry is not None and "first" in entry[4]:
            return int(entry[4]["first"])
        if later := [first for first in places if first not in self.signals]:
            return int(later[0])
        claimed: Any = self._part.data.get("claimed")
        parts = split_signal_id(str(claimed.get("activation_id"))) if claimed else None
        return parts[1] if parts is not None else int(places[-1] if places else 1)


def replay_part(
    recording: Recording, runs: RecordedRuns, part: Part, workflow: Workflow, policy: ReplayPolicy
) -> PartReplay:
    """Replay one part. One that diverges is replayed again with a patient script, which may have been the order of its tasks.

    Arguments of a step that are different in both replays come from a clock or from chance, so they are no divergence.
    """
    varying = set[str]()
    while True:
        eager = PartReplay(recording, runs, part, workflow, policy, varying, is_patient=False)
        eager.run()
        if eager.divergence is None:
            return eager
        patient = PartReplay(recording, runs, part, workflow, policy, varying, is_patient=True)
        patient.run()
        if patient.divergence is None:
            return patient
        if (step := _varying_step(eager.changed, patient.changed)) is None:
            return max((eager, patient), key=_divergence_seq)
        varying.add(step)


def _divergence_seq(replay: PartReplay) -> int:
    """How far a replay came. The one that came furthest has the order of the tasks, so its difference is that of the code."""
    return 0 if replay.divergence is None else replay.divergence.seq


def _varying_step(one: ChangedArguments | None, other: ChangedArguments | None) -> str | None:
    """The step that receives other arguments in each replay of the same code."""
    is_varying = one is not None and other is not None and one.request.call_id == other.request.call_id and (
        one.difference != other.difference)  # fmt: skip
    return one.request.call_id if one is not None and is_varying else None


def replayable(workflow: Workflow) -> Workflow:
    """The application without its observers, its memory and its secrets, which a replay does not use."""
    return replace(workflow, phase_handlers=(), memory=None, secrets=None)


def _run_of(data: Mapping[str, Any]) -> str | None:
    """The run of a part: that of the recording, or one that it was forked from."""
    of = data.get("claimed", data.get("pending", {}).get("run", data))
    run_id = of.get("run_id") if isinstance(of, dict) else None
    return run_id if isinstance(run_id, str) else None


def _kernel_call(function: str, item: Mapping[str, Any]) -> str:
    """A kernel call as a message names it, with the calls of the agent that it is for."""
    if function == "suspend":
        calls = (f"{call_label(call['kind'], call['tool'])} ({call['call_id']})" for call in item["calls"])
        return f"suspension for {', '.join(calls)}"
    if function == "begin_call":
        return f"start of {call_label('inline', item['tool'])} ({item['call_id']})"
    return f"result of call {item['call_id']}" if function == "record_call" else function


def _named(entry: Sequence[Any]) -> str:
    return " ".join(str(each) for each in (entry[0], *entry[2:3]) if isinstance(each, str))
