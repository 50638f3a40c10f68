"""What an adapter is: it opens its target in a process, and then receives the signals of one subscription.

An adapter keeps no queue. It receives signals of one run in order, and returns when its target has them. Until then the other signals
of the run wait in the log. Its exception decides what happens next.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from heliograph.errors import HeliographError
from heliograph.signals.model import Signal

if TYPE_CHECKING:  # slow to import, and each application imports this module
    from heliograph.egress.messenger import Messenger
    from heliograph.telemetry.metrics import Registry
    from heliograph.world.seam import World

T = TypeVar("T")

PAGE = 200  # signals of one run that an adapter receives at once, at most

Receive = Callable[[Sequence[Signal]], Awaitable[None]]


class DeliveryFailed(HeliographError):
    """The target does not accept these signals. They are sent a few times more, and then skipped; at once if `is_final`."""

    def __init__(self, message: str, *, is_final: bool = False):
        super().__init__(message, code="delivery_failed")
        self.is_final = is_final


class TargetUnavailable(HeliographError):
    """The target accepts no signals now. They wait in the log; none is skipped."""

    def __init__(self, message: str, retry_after_seconds: float = 0.0):
        super().__init__(message, code="target_unavailable")
        self.retry_after_seconds = retry_after_seconds


class TargetElsewhere(HeliographError):
    """Processes of another kind have the target, for example workers with metrics. The signals wait in the log for one of them."""

    def __init__(self, message: str):
        super().__init__(message, code="target_elsewhere")


class TargetGone(HeliographError):
    """The target will accept no more signals of this process. They wait in the log for another process."""

    def __init__(self, message: str):
        super().__init__(message, code="target_gone")


class AdapterServices:
    """What a process offers to the adapter of one subscription in one project.

    messenger: sends webhooks; None without secrets to sign them. registry: the metrics of the process; None if nobody reads them.
    threads: how many functions of the adapter run in threads; one may outlive the call that started it.
    """

    def __init__(
        self, world: World, project: str, *, messenger: Messenger | None = None, registry: Registry | None = None
    ):
        self.world = world
        self.project = project
        self.messenger = messenger
        self.registry = registry
        self.threads = 0
        self.on_thread_end: Callable[[], None] = lambda: None

    async def run_sync(self, function: Callable[..., T], *args: object) -> T:
        """Run a function that may block in a thread of its own."""
        self.threads += 1
        return await self.world.run_sync(function, *args, ended=self._thread_ended)

    def _thread_ended(self) -> None:
        self.threads -= 1
        self.on_thread_end()


class SignalAdapter(Protocol):
    """Sends signals to a target.

    kind: the end of the default name of its subscription. page: how many signals `open`'s function receives at once, at most.
    """

    @property
    def kind(self) -> str: ...

    @property
    def page(self) -> int: ...

    @property
    def target(self) -> str:
        """The target, for messages; without secrets."""
        ...

    def open(self, services: AdapterServices, subscription: Any) -> AbstractAsyncContextManager[Receive]:
        """Open the target for the signals of a subscription (a SignalSubscriber).

        The function that it yields raises DeliveryFailed, TargetUnavailable or TargetGone; any other exception is an error of these
        signals. Raises TargetElsewhere in a process that is not to send, SetupError or Rejected in one that cannot: another process has to.
        """
        ...
