"""The part of the client that reads signals: of a run, of all runs of a project, and why each was emitted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from heliograph.client.arguments import check_id, check_limit, check_signal_id, check_subject
from heliograph.client.followed_run import FollowedRun
from heliograph.client.open_client import OpenClient
from heliograph.definitions.signal_definition import SignalDefinition
from heliograph.definitions.signal_subscribers import check_positions, check_subscription, check_subscription_name
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.ledger.signal_feed import SignalFeed, SubscriptionRow
from heliograph.signals.model import Signal
from heliograph.subscriptions.iteration import deliveries_of
from heliograph.subscriptions.leased_runs import LEASE_SECONDS
from heliograph.turn.interruptions import check_seconds
from heliograph.type_variables import State_co

if TYPE_CHECKING:
    from heliograph.control.envelope import Envelope
    from heliograph.reactive.workflow import Workflow
    from heliograph.run_result import EndedRun

CAUSES = EFFECTS = 200  # of one page, by default
_SEQ_MAX = 2**63 - 1
P = TypeVar("P")


class Application(Protocol):
    """The part of `Heliograph` that `Client.start` and `Client.why_not` read."""

    @property
    def workflow(self) -> Workflow: ...


class TypedApplication(Application, Protocol[State_co]):
    """An application whose state has a known type. `run` is declared because its result carries that type."""

    async def run(self) -> EndedRun[State_co]: ...


class SignalClient(OpenClient):
    """Reads the signals of one project; see `Client`."""

    def follow(self, run_id: str, after: int = 0) -> FollowedRun:
        """Iterate over the signals of a run after position `after` as they are recorded, up to `workflow:end`.

        A follower that resumes with the `seq` of its last signal receives every signal exactly once. If the database becomes
        unreachable, it retries for up to a minute. Raises NotFound (`unknown_run`), StoreUnavailable, InvalidInput.

        The first iteration finds an unknown run. `signals = await client.follow(run_id)` finds it at once, so a web application can
        answer 404 before it begins a stream.
        """
        return FollowedRun(self._open, check_id(run_id, "a run id", "/run_id"), _check_position(after))

    async def why(self, signal_id: str, *, limit: int = CAUSES) -> dict[str, Any]:
        """Return the causes of a signal, itself first and the root last, as the SQL function `why` does: {signal, chain, end, next}.

        Each link of the chain is a signal with its turn, the verdict of a guard in its payload, and the changes of the state.
        A longer chain continues with `why(next)`. limit: from 1 to 1,000.
        Raises NotFound (`unknown_signal`, `pruned_signal`), InvalidInput.
        """
        check_limit(limit)
        return await self._open.reader.causes.why(check_signal_id(signal_id), limit)

    async def tree(self, subject: str, *, after: int = 0, limit: int = EFFECTS) -> dict[str, Any]:
        """Return the effects of a signal, or the signals of a run, as the SQL function `read_tree` does: {subject, run_id, signals, next}.

        They come in pages, in the order of the log: the next page begins with `after=next`. limit: from 1 to 1,000.
        Raises NotFound (`unknown_signal`, `pruned_signal`, `unknown_run`, `pruned_run`), InvalidInput.
        """
        check_limit(limit)
        return await self._open.reader.causes.tree(check_subject(subject), _check_position(after), limit)

    async def graph(self, subject: str, *, after: int = 0, limit: int = EFFECTS) -> dict[str, Any]:
        """Return causes and effects as the SQL function `read_graph` does: {subject, nodes, edges, next}.

        Pages and errors are as in `tree`; the causes come with the first page.
        """
        check_limit(limit)
        return await self._open.reader.causes.graph(check_subject(subject), _check_position(after), limit)

    async def why_not(self, run_id: str, agent: str, app: Application | None = None) -> dict[str, Any]:
        """Explain why an agent of a run did not wake: {findings, and the facts of the SQL function `why_not`}.

        Each finding has a code, the problem, the next step, and the signal that came near. app: the application, to compare the
        agent's patterns with the signals of the run; without it, the findings are those that the ledger records.
        Raises NotFound (`unknown_run`, `pruned_run`, `unknown_agent`), InvalidInput.
        """
        from heliograph.reactive.why_not import explain  # other methods do without it

        facts = await self._open.reader.causes.why_not(
            check_id(run_id, "a run id", "/run_id"), check_id(agent, "an agent", "/agent")
        )
        return {**facts, "findings": explain(facts, None if app is None else app.workflow)}

    @overload
    def subscribe(
        self, name: str, patterns: Sequence[SignalDefinition[P]], *, since: str = "now", after: Mapping[str, int] | None = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> AsyncGenerator[Signal[P], None]: ...  # fmt: skip

    @overload
    def subscribe(
        self, name: str, patterns: Sequence[str | SignalDefinition[Any]], *, since: str = "now",
        after: Mapping[str, int] | None = None, lease_seconds: float = LEASE_SECONDS,
    ) -> AsyncGenerator[Signal[Any], None]: ...  # fmt: skip

    async def subscribe(
        self, name: str, patterns: Sequence[Any], *, since: str = "now", after: Mapping[str, int] | None = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> AsyncGenerator[Signal[Any], None]:  # fmt: skip
        """Iterate without end over the signals of all runs of the project that match a pattern, under a durable name.

        The database has the position in each run. Processes with the same name share the signals: each goes to one of them, those of one
        run in order, and again to another one if the process dies. A signal counts as processed when the next one is requested.
        patterns: texts, or definitions of `define_signal`; signals of these have the model as their payload.
        since: a new subscription begins with signals from `now` on, or with the `start` of each run. after: the position (`seq`) after
        which it begins in the runs that are named here. lease_seconds: how long another process waits for the signals of one that died.
        Raises Conflict (`id_conflict`) for a name with other patterns, Rejected (`pattern_not_granted`, `unknown_position`,
        `pruned_position`), NotFound (`unknown_run`, `unknown_subscription`), InvalidInput.
        """
        texts, definitions = check_subscription(name, patterns, since)
        positions, seconds = check_positions(after), check_seconds("lease_seconds", lease_seconds)
        feed = SignalFeed(self._open.world, self._name)
        await feed.subscribe(name, texts, since, positions)
        async with aclosing(deliveries_of(self._open.world, feed, name, texts, definitions, seconds)) as signals:
            async for signal in signals:
                yield signal

    async def unsubscribe(self, name: str) -> None:
        """Delete a durable subscription. Raises NotFound (`unknown_subscription`), Rejected (`pattern_not_granted`), InvalidInput."""
        check_subscription_name(name)
        await SignalFeed(self._open.world, self._name).unsubscribe(name)

    async def subscriptions(self) -> list[SubscriptionRow]:
        """List the durable subscriptions of the project, by name."""
        return await SignalFeed(self._open.world, self._name).subscriptions()

    async def control_signals(self, run_id: str, *, strict: bool = False) -> AsyncGenerator[Envelope, None]:
        """Iterate over the control signals of a run, in envelopes, from its start to its end, as they are recorded.

        strict: replace our own codes of errors by those of the specification.
        Raises the errors of `follow`, and KernelRejected (`UNDECODABLE`) for a malformed payload.
        """
        from heliograph.control.run_log import RunLog  # slow to import; other methods do without it
        from heliograph.control.strict_codes import strict_envelope

        log = RunLog()
        async with aclosing(self.follow(run_id)) as signals:
            async for signal in signals:
                if (envelope := log.envelope_of(signal)) is not None:
                    yield strict_envelope(envelope) if strict else envelope


def _check_position(after: int) -> int:
    if isinstance(after, bool) or not isinstance(after, int) or not 0 <= after < _SEQ_MAX:
        raise InvalidInput(
            f"after must be the seq of a signal, not {safe_repr(after)}", code="out_of_range", path="/after"
        )
    return after
