"""The application: agents and a typed state under one name, and the methods that run it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any

from heliograph.app_checks import checked_memory, checked_routes
from heliograph.codes import USER_INTERRUPT
from heliograph.definitions.agent import PRIORITIES
from heliograph.definitions.functions import check_function
from heliograph.definitions.model_settings import check_model_settings
from heliograph.definitions.signal_settings import GRACE_SECONDS, read_application_settings
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput, NotFound
from heliograph.observer_registry import ObserverRegistry
from heliograph.reactive.state import StateShape
from heliograph.reactive.workflow import Reducer, Workflow, build_workflow, check_rules, hint_of_agents
from heliograph.type_variables import AppDeps, AppState
from heliograph.types import NOT_GIVEN, NotGiven

if TYPE_CHECKING:
    from heliograph.client.replies import StopResult
    from heliograph.client.session import Session
    from heliograph.control.observability import Observability
    from heliograph.control.routing import RouteTable
    from heliograph.definitions.signal_definition import SignalDefinition
    from heliograph.manifest.message_routing import MessageRouting
    from heliograph.manifest.runtime_spec import RuntimeSpec
    from heliograph.ports import Memory
    from heliograph.recording.modes import Mode
    from heliograph.recording.options import RecordingOptions
    from heliograph.run_fork import Fork
    from heliograph.run_result import RunResult
    from heliograph.secrets import Resolver
    from heliograph.signals.model import Signal

_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")


class Heliograph(ObserverRegistry[AppState, AppDeps]):
    """An application: a name that workers serve, a typed state, and agents that signals activate.

    name: lower-case letters, digits, '_' and '-'. Workers serve the application by this name.
    state: a pydantic model, a dataclass or a TypedDict; None for any JSON object. Its keys are ASCII letters, digits,
        '_', '-' and '.', because each change emits state:<key>:changed.
    reducers: by state key, `(old, new) -> merged`; a key without one is replaced.
    end_when: a function of the state. Once it returns True, no agent is activated, and the run ends after its open turns.
    max_activations: a guard against loops: the largest number of turns since the start of a run or its last message from outside.
        A run that reaches it ends as failed, and its open turns are stopped.
    deps: an object that agents and tools need, with clients and settings: `Context.deps` and `ToolContext.deps`.
    memory: stores memories beyond a run; None for full-text search in the database.
    secrets: `(name) -> value or None`, resolves `secret://name`; the environment is used for None.
    control_signals: settings per type of control signal, for each of its targets:
        `{"tool_call": {"timeout_seconds": 30, "retry": {...}, "circuit_breaker": {...}, "rate_limit": "10/s"}}`; also for `delegation`.
        `halt` may have `force_after_seconds`, the grace of `stop` and of halts through gateways. `heartbeat` has the settings of the
        workers' heartbeats.
    models: settings per model: `{"anthropic:*": {"retry": {...}, "circuit_breaker": {...}, "requests": "60/m", "tokens": "100000/m"}}`.
        All workers share the breaker and the limits.
    routes: a RouteTable, or its parsed YAML or JSON: which pool of workers or gateway a delegation or the call of an external tool goes
        to. gateways: the URLs of the gateways that the table names.
    """

    def __init__(
        self, name: str, *, state: type[AppState] | None = None, reducers: Mapping[str, Reducer] | None = None,
        end_when: Callable[[AppState], bool] | None = None, max_activations: int = 1000, deps: AppDeps | None = None,
        memory: Memory | None = None, secrets: Resolver | None = None,
        control_signals: Mapping[str, Any] | None = None, models: Mapping[str, Any] | None = None,
        routes: RouteTable | Mapping[str, Any] | None = None, gateways: Mapping[str, str] | None = None,
    ):  # fmt: skip
        if not isinstance(name, str) or not 0 < len(name) <= 63 or not _NAME_CHARACTERS.issuperset(name):
            raise InvalidInput(f"an application's name must be 1 to 63 of a-z, 0-9, '_' and '-', not {safe_repr(repr_of(name))}",
                               code="invalid_identifier", path="/name")  # fmt: skip
        reducers = {} if reducers is None else reducers
        check_rules(reducers, end_when, max_activations)
        super().__init__()
        self.name = name
        self._shape = StateShape(state)
        self._reducers = dict(reducers)
        self._end_when = end_when
        self._max_activations = max_activations
        self._deps = deps
        self._memory = checked_memory(memory)
        if secrets is not None:
            check_function(secrets, "secrets", "/secrets", "the name")
        self._secrets = secrets
        self._control_signals = dict(control_signals or {})
        self._settings = read_application_settings(control_signals)
        self._model_settings = check_model_settings(models)
        self._gateways = gateways
        self._routes = checked_routes(routes, gateways)
        self._observability: Observability | None = None
        self._notices: tuple[str, ...] = ()

    @property  # pyright accepts no cached property where a protocol has a property
    def workflow(self) -> Workflow:
        """The application in the form that the runtime executes. Raises InvalidInput if it is invalid as a whole."""
        return self._workflow

    @cached_property
    def _workflow(self) -> Workflow:
        return build_workflow(Workflow(self.name, dict(self._agents), self._shape, self._reducers, self._end_when,
                                       self._max_activations, self._deps, self._memory, self._secrets,
                                       tuple(self._phase_handlers), self._settings.calls, self._model_settings,
                                       self._routes, self._settings.heartbeat, self._settings.grace_seconds,
                                       self._observability, self._notices, tuple(self._subscribers.values())))  # fmt: skip

    def configured(
        self, runtime: RuntimeSpec | None = None, routing: MessageRouting | None = None
    ) -> Heliograph[AppState, AppDeps]:
        """Return a copy of the application with the settings of manifests, which `helio run` and `helio worker` apply.

        runtime: each of its settings replaces that of this application. The options of agents, tools and calls are narrower, and stay.
        routing: replaces the route table of this application.
        Raises ManifestRejected, with all problems, for settings that do not suit an agent and gateways without a URL.
        """
        from heliograph.manifest.apply import configured_agents, merged_signals, read_merged, unused_settings
        from heliograph.manifest.problems import ManifestProblem, accepted, gathered

        made = copy(self)
        made.__dict__.pop("_workflow", None)
        found: list[ManifestProblem] = []
        if runtime is not None:
            with gathered(found):
                made._agents = configured_agents(self._agents, runtime)
            made._control_signals = merged_signals(self._control_signals, runtime)
            with gathered(found):
                made._settings = read_merged(made._control_signals, runtime)
            made._observability = runtime.observability
            warnings = (*runtime.warnings, *unused_settings(self.name, self._agents, runtime))
            made._notices += tuple(each.notice for each in warnings)
        if routing is not None:
            with gathered(found):
                made._routes = routing.checked_table(self._gateways)
            made._notices += tuple(each.notice for each in routing.warnings)
        accepted(found)
        return made

    async def run(
        self, state: AppState | Mapping[str, Any] | None = None, *, run_id: str | None = None, on_signal: Callable[[Signal], None] | None = None,
        worker: bool = True, concurrency: int = 16, lease_seconds: float = 30.0, callback_url: str | None = None,
        record: str | os.PathLike[str] | RecordingOptions | None = None, mode: Mode = "record",
    ) -> RunResult[AppState]:  # fmt: skip
        """Run to the end; return the final state, all signals, metrics and outcome.

        run_id: names the run. A call with the same id and the same state, or without a state, continues the run, even after a
            crash, or reads it if it has ended.
        on_signal: called with each signal as it is recorded, in order.
        worker: False if only workers in other processes run the turns. Otherwise this process runs turns of all pools.
        callback_url: receives a signed POST when the run ends, from a worker with HELIOGRAPH_WEBHOOK_SECRETS.
        record: the file of a recording of the run, or a `RecordingOptions` to name it in the database alone.
        mode: with a file. `record` runs and writes it. `replay` reads it: nothing runs, and no database is opened. `auto` replays
            a file that exists. Otherwise it records one, or raises NotFound if the variable CI is set. `live` runs without it.
        Raises ReplayDiverged if the code does something else than its recording, InvalidInput for an invalid state, Conflict
        (`id_conflict`) for a run id that exists with another state, StoreUnavailable if the database
        remains unreachable.
        """
        from heliograph.recording.export import export_recording
        from heliograph.recording.file import check_writable, write_recording
        from heliograph.recording.modes import chosen_mode, replay_run
        from heliograph.recording.options import RecordingOptions
        from heliograph.runtime import open_runtime, telemetry_of

        workflow = self.workflow  # raises for an invalid application before a database is opened
        settings, file = (record, None) if isinstance(record, RecordingOptions) else (None, record)
        chosen = chosen_mode(mode, file, os.environ)
        if chosen == "replay" and file is not None:
            return replay_run(file, workflow, state)
        if file is not None and chosen == "record":
            check_writable(file)
            settings = RecordingOptions()
        async with open_runtime(telemetry=telemetry_of([workflow], os.environ)) as runtime:
            result = await runtime.run(workflow, state, run_id=run_id, on_signal=on_signal, worker=worker,
                                       concurrency=concurrency, lease_seconds=lease_seconds,
                                       callback_url=callback_url, record=settings)  # fmt: skip
            if file is not None and chosen == "record":
                write_recording(await export_recording(runtime.reader, result.run_id), file)
            return result

    def run_sync(
        self, state: AppState | Mapping[str, Any] | None = None, *, run_id: str | None = None,
        on_signal: Callable[[Signal], None] | None = None, worker: bool = True, concurrency: int = 16, lease_seconds: float = 30.0,
        callback_url: str | None = None, record: str | os.PathLike[str] | RecordingOptions | None = None, mode: Mode = "record",
    ) -> RunResult[AppState]:  # fmt: skip
        """Run to the end in a program without an event loop; see `run`.

        Raises InvalidInput (`event_loop_runs`) where one runs, such as in a notebook: write `await app.run(...)` there.
        """
        import asyncio

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise InvalidInput(
                "run_sync cannot wait where an event loop runs; write `await app.run(...)`", code="event_loop_runs"
            )
        from heliograph.world.event_loop import new_event_loop

        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(self.run(
                state, run_id=run_id, on_signal=on_signal, worker=worker, concurrency=concurrency, lease_seconds=lease_seconds,
                callback_url=callback_url, record=record, mode=mode,
            ))  # fmt: skip

    @asynccontextmanager
    async def session(
        self, session_id: str | None = None, *, agent: str | None = None, state: AppState | Mapping[str, Any] | None = None,
        worker: bool = True, concurrency: int = 16, lease_seconds: float = 30.0, record: RecordingOptions | None = None,
    ) -> AsyncIterator[Session]:  # fmt: skip
        """Open a conversation, or continue it: `async with app.session("anna") as session: reply = await session.send("Hello")`.

        A session is a run that waits for messages until it is closed. Each message is answered by one turn of its agent, whose model receives
        the earlier messages with their roles. The start of a session activates no agent.
        session_id: names the session, and its run; a new one for None. agent: answers the messages; by default the only agent, or the only
            one with a prompt. state: of a new session.
        worker: False if only workers in other processes run the turns.
        Raises InvalidInput, NotFound (`unknown_agent`), Conflict (`id_conflict`) for the id of a run that is no session.
        """
        from heliograph.client.session import open_session
        from heliograph.runtime import open_runtime, telemetry_of

        workflow = self.workflow
        async with (
            open_runtime(telemetry=telemetry_of([workflow], os.environ)) as runtime,
            open_session(runtime, workflow, session_id, agent=agent, state=state, worker=worker, concurrency=concurrency,
                         lease_seconds=lease_seconds, record=record) as session,
        ):  # fmt: skip
            yield session

    async def fork(self, run_id: str, at: str | int, *, state: Any = None, new_run_id: str | None = None) -> Fork:
        """Start a new run that continues the log of a run after one of its signals, with this application's code.

        at: the id or the seq of the signal. The signals that were recorded together with it are shared, too. The log is not
            copied: the fork shares it, and the original run remains as long as the fork.
        state: replaces the state at that signal. new_run_id: names the fork; a second call with the same arguments returns the
            same fork.

        Turns that had ended do not run again. Turns in progress start again, with the results that their calls had; see
        `Fork.turns`. The fork has budgets and idempotency keys of its own. Execute it like any run: with
        `helio run FILE.py:app --run-id ID`, or by a worker.

        Raises NotFound (`unknown_run`, `unknown_signal`, `unknown_agent`), Rejected (`run_ended`, `pruned_signal`,
        `pruned_turn`), Conflict (`id_conflict`), InvalidInput for an invalid state.
        """
        from heliograph.run_fork import fork_run
        from heliograph.runtime import open_runtime, telemetry_of

        workflow = self.workflow
        async with open_runtime(telemetry=telemetry_of([workflow], os.environ)) as runtime:
            return await fork_run(runtime, workflow, run_id, at, state, new_run_id)

    async def retry(self, run_id: str, *, new_run_id: str | None = None) -> Fork:
        """Fork a run that has ended, directly before its first failed turn ended, so that the turn runs again.

        The turn keeps the results of its calls, and makes its last calls again if they failed. Returns and raises as `fork`, and
        Rejected (`run_active`, `no_failed_turn`).
        """
        from heliograph.run_fork import retry_run
        from heliograph.runtime import open_runtime, telemetry_of

        workflow = self.workflow
        async with open_runtime(telemetry=telemetry_of([workflow], os.environ)) as runtime:
            return await retry_run(runtime, workflow, run_id, new_run_id)

    async def enqueue(
        self, run_id: str, agent: str, payload: Any = None, *, name: str | SignalDefinition[Any] = "user:message", turn_id: str | None = None,
        context_box_id: str | None = None, ui_action: bool = False, callback_url: str | None = None,
    ) -> str:  # fmt: skip
        """Send a message to an agent of a run; return the id of the turn that handles it.

        The turn has the agent's priority, attempts, time to live, result fields and budget. A second call with the same
        turn_id and message returns the same turn. name: of the signal, or its definition; a definition checks the payload. See
        `Client.enqueue` for the other arguments and the errors.
        """
        from heliograph.client.client import Client
        from heliograph.runtime import telemetry_of

        spec = self.workflow.agents.get(agent)
        if spec is None:
            hint = hint_of_agents(str(agent), self.workflow.agents)
            raise NotFound(f"application {self.name} has no agent {safe_repr(agent)}; {hint}", code="unknown_agent")
        async with Client(telemetry=telemetry_of([self.workflow], os.environ)) as client:
            return await client.enqueue(
                run_id, agent, payload, name=self._definition_of(name), turn_id=turn_id, priority=PRIORITIES[spec.priority],
                max_attempts=spec.max_attempts, ttl_seconds=spec.ttl_seconds, result_fields=spec.result_fields, pool=spec.pool,
                context_box_id=context_box_id, ui_action=ui_action, callback_url=callback_url, budget=spec.budget,
            )  # fmt: skip

    def _definition_of(self, signal: str | SignalDefinition[Any]) -> str | SignalDefinition[Any]:
        """The definition that the application has for a name; the name itself if it has none."""
        return self.workflow.signals.get(signal, signal) if isinstance(signal, str) else signal

    async def stop(
        self, run_id: str | None = None, *, turn: str | None = None, now: bool = False, grace_seconds: float | NotGiven = NOT_GIVEN,
        reason: str = USER_INTERRUPT, actor: str | None = None,
    ) -> StopResult:  # fmt: skip
        """End a run, or one turn, as canceled; see `Client.stop_run` and `Client.stop_turn`.

        grace_seconds: by default `force_after_seconds` of `halt` in `control_signals`, or else 10.
        Raises InvalidInput unless exactly one of the two is given.
        """
        from heliograph.client.client import Client

        if (run_id is None) == (turn is None):
            raise InvalidInput(
                "stop needs exactly one of run_id and turn; pass the id of a run, or turn='turn_...'",
                code="required_field",
            )
        if isinstance(grace_seconds, NotGiven):
            grace_seconds = GRACE_SECONDS if self._settings.grace_seconds is None else self._settings.grace_seconds
        async with Client() as client:
            if turn is not None:
                return await client.stop_turn(turn, now=now, grace_seconds=grace_seconds, reason=reason, actor=actor)
            assert run_id is not None
            return await client.stop_run(run_id, now=now, grace_seconds=grace_seconds, reason=reason, actor=actor)
