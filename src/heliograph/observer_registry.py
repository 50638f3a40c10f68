"""Registering what observes an application: functions for the phases of its turns, and functions and targets for signals."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from heliograph.adapters.callback import function_subscriber
from heliograph.agent_registry import AgentRegistry
from heliograph.app_checks import name_of_function
from heliograph.definitions.phase_handlers import PhaseHandler, check_event, phase_handler
from heliograph.definitions.signal_subscribers import SignalSubscriber, signal_subscriber
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput
from heliograph.type_variables import AppDeps, AppState

if TYPE_CHECKING:
    from heliograph.adapters.base import SignalAdapter
    from heliograph.definitions.signal_definition import SignalDefinition
    from heliograph.signals.model import Signal

F = TypeVar("F", bound=Callable[..., Any])
P = TypeVar("P")
T = TypeVar("T")


class ObserverRegistry(AgentRegistry[AppState, AppDeps]):
    """The observers of an application, beside its agents. `Heliograph` is one."""

    def __init__(self) -> None:
        super().__init__()
        self._phase_handlers: list[PhaseHandler] = []
        self._subscribers: dict[str, SignalSubscriber] = {}

    def on_lifecycle(self, event: str) -> Callable[[F], F]:
        """Register a plain or async function that observes the phases of this application's turns, in each worker.

        event: `phase_started`, `phase_completed`, `metric` or `turn_completed`. The function takes any of the event's arguments,
            by name: agent_id, agent, run_id and turn_id of every event; phase of all but turn_completed; duration_ms and status
            of phase_completed and turn_completed; result and error of turn_completed; name and value of a metric, which are
            `agent.lifecycle.<phase>.started` (1) and `agent.lifecycle.<phase>.duration` (ms).
        Turns do not wait for handlers: a call that raises or takes over five seconds is logged and loses its event, and so
        does a handler with 1000 waiting events. An async handler runs on the worker's event loop, so it must not block.
        Raises InvalidInput (`unknown_event`, `wrong_type`).
        """
        known = check_event(event)

        def register(function: F) -> F:
            self._phase_handlers.append(phase_handler(known, function))
            self.__dict__.pop("_workflow", None)
            return function

        return register

    @overload
    def on_signal(
        self, *signals: SignalDefinition[P], name: str | None = None, since: str = "now", timeout_seconds: float = 60.0,
        max_attempts: int = 5,
    ) -> Callable[[Callable[[Signal[P]], T]], Callable[[Signal[P]], T]]: ...  # fmt: skip

    @overload
    def on_signal(
        self, *signals: str | SignalDefinition[Any], name: str | None = None, since: str = "now", timeout_seconds: float = 60.0,
        max_attempts: int = 5,
    ) -> Callable[[Callable[[Signal[Any]], T]], Callable[[Signal[Any]], T]]: ...  # fmt: skip

    def on_signal(
        self, *signals: Any, name: str | None = None, since: str = "now", timeout_seconds: float = 60.0, max_attempts: int = 5,
    ) -> Any:  # fmt: skip
        """Register a plain or async function that receives the signals of all runs of the project that match a pattern.

        The workers of the application call it, also those in `run`: each signal goes to one of them, those of one run in order, and
        again to another one if a worker dies. No turn waits for it.
        signals: patterns, or definitions of `define_signal`; signals of these have the model as their payload.
        name: of the subscription, by default the name of the application and of the function. since: where a new subscription begins:
            with signals from `now` on, or with the `start` of each run. timeout_seconds: of one call. max_attempts: a signal whose call
            raises or takes too long is delivered so often, with pauses, and then skipped, with an error in the log of the process.
        Raises InvalidInput, and SetupError (`conflicting_definitions`).
        """

        def register(function: F) -> F:
            chosen = f"{self.name}.{name_of_function(function)}" if name is None else name
            self._subscribe(function_subscriber(chosen, signals, function, since, timeout_seconds, max_attempts))
            return function

        return register

    def send_signals(
        self, *signals: str | SignalDefinition[Any], to: SignalAdapter, name: str | None = None, since: str = "now",
        max_attempts: int = 5,
    ) -> None:  # fmt: skip
        """Send the signals of all runs of the project that match a pattern to a target: a Webhook, JsonLines, Logs, Metrics or a Terminal.

        The workers of the application send them, as they call the functions of `on_signal`: each signal is sent by one of them, at least
        once, those of one run in order. While the target is unavailable, they wait in the log. No turn waits for a target.
        signals: patterns, or definitions of `define_signal`. name: of the subscription, by default the name of the application and the kind
            of the target, such as `shop.webhook`. since: as for `on_signal`. max_attempts: how often a signal is sent that the target
            rejects, before it is skipped with an error in the log of the process.
        Raises InvalidInput, and SetupError (`conflicting_definitions`).
        """
        if (
            isinstance(to, type)
            or not callable(getattr(to, "open", None))
            or not isinstance(getattr(to, "kind", None), str)
        ):
            raise InvalidInput(f"to must be a target such as JsonLines('signals.jsonl'), not {safe_repr(repr_of(to))}; @app.on_signal(...) "
                               "registers a function", code="wrong_type", path="/subscribers/to")  # fmt: skip
        chosen = f"{self.name}.{to.kind}" if name is None else name
        self._subscribe(signal_subscriber(chosen, signals, to, since, max_attempts))

    def _subscribe(self, subscriber: SignalSubscriber) -> None:
        if subscriber.name in self._subscribers:
            raise InvalidInput(f"application {self.name} has two subscribers named {subscriber.name}; pass another name",
                               code="duplicate_subscriber", path=f"/subscribers/{subscriber.name}")  # fmt: skip
        self._subscribers[subscriber.name] = subscriber
        self.__dict__.pop("_workflow", None)
