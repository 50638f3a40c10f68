"""A ledger of 100,000 finished turns, and a count of the rows that a call reads of it."""

from __future__ import annotations

from heliograph.testing.database import TestServer
from tests.kernel.filled import fill
from tests.kernel.kit import TARGET, Kernel, connect

FINISHED_TURNS = 100_000

FILL = f"""
insert into runs (project_id, run_id, target, status, outcome, request_hash, state, memory, signal_seq, open_turns, created_at,
    updated_at, ended_at, recording_tags, recording_name)
  select 'filled', 'run_' || n, '{TARGET}', 'ended', 'success', '', '{{}}', '{{}}', 9, 0, now(), now(), now(),
         case when n % 4 = 3 then array[]::text[] end, case n when 7 then 'shop' end
    from generate_series(1, {FINISHED_TURNS} / 5) n;
insert into agent_state_head (project_id, agent_id, run_id, agent_name, target, moved_at)
  select 'filled', 'run_' || n || '/writer', 'run_' || n, 'writer', '{TARGET}', now() from generate_series(1, {FINISHED_TURNS} / 5) n;
insert into agent_turns (project_id, agent_turn_id, agent_id, run_id, state, outcome, max_attempts, cause_seq,
    activation_seq, output_box_id, created_at, expires_at, finished_at)
  select 'filled', 'done_' || n, 'run_' || 1 + n / 5 || '/writer', 'run_' || 1 + n / 5, 'done', 'success', 3, 1, 2,
         'box_done_' || n, now(), now(), now() from generate_series(1, {FINISHED_TURNS}) n;
insert into agent_inbox (project_id, agent_turn_id, message_type, status, correlation_id, next_retry_at, created_at)
  select project_id, agent_turn_id, 'turn', 'consumed', 'sig_x_1', now(), now() from agent_turns where agent_turn_id like 'done%';
insert into cards (project_id, card_id, box_id, agent_turn_id, turn_epoch, kind, content, created_at)
  select project_id, 'card:' || agent_turn_id || ':end', output_box_id, agent_turn_id, 2, 'task.deliverable', '{{}}', now() from agent_turns where agent_turn_id like 'done%';
insert into turn_waiting_tools (project_id, agent_turn_id, tool_call_id, tool, kind, state, epoch, deadline, status, resolved_position,
    opened_at, resolved_at)
  select project_id, agent_turn_id, 'c1', 'search', 'tool', 'resolved', 2, now(), 'success', 1, now(), now() from agent_turns
   where agent_turn_id like 'done%';
insert into leases (project_id, agent_id, turn_epoch, agent_turn_id, owner, started_at, ended_at)
  select project_id, agent_id, queue_seq, agent_turn_id, 'worker', now(), now() from agent_turns where agent_turn_id like 'done%';
insert into outbox (project_id, kind, key, agent_turn_id, created_at, due_at, published_at)
  select project_id, 'task_event', 'evt:' || agent_turn_id, agent_turn_id, now(), now(), now() from agent_turns where agent_turn_id like 'done%';
insert into outbox (project_id, kind, key, agent_turn_id, call_id, tool, created_at, due_at, published_at)
  select project_id, 'cmd', 'cmd:' || agent_turn_id || ':c1', agent_turn_id, 'c1', 'search', now(), now(), now() from agent_turns where agent_turn_id like 'done%';
insert into signals (project_id, run_id, seq, count, entries, at)
  select 'filled', 'run_' || r, s, 3, '[{{}}, {{}}, {{}}]', now()
    from generate_series(1, {FINISHED_TURNS} / 5) r, generate_series(1, 7, 3) s;
insert into boxes (project_id, box_id, kind, created_at)
  select 'filled', 'context_old_' || n, 'context', now() from generate_series(1, {FINISHED_TURNS} / 5) n;
insert into blobs (project_id, blob_id, bytes, content, created_at)
  select 'filled', 'sha256:' || n, 2, '{{}}', now() from generate_series(1, {FINISHED_TURNS} / 5) n;
insert into pruned (project_id, id, pruned_at)
  select 'filled', 'turn:pruned_' || n, now() from generate_series(1, {FINISHED_TURNS} / 5) n;
insert into memories (project_id, memory_id, agent, text, metadata, created_at)
  select 'filled', 'memory_old_' || n, 'agent_' || n, 'a memory', '{{}}', now() from generate_series(1, {FINISHED_TURNS} / 5) n;
insert into callbacks (project_id, callback_id, run_id, turn_id, url, state, created_at, finished_at)
  select 'filled', 'callback_old_' || n, 'run_' || n, 'done_' || n, 'https://x', 'delivered', now(), now() from generate_series(1, {FINISHED_TURNS} / 5) n;
insert into workers (project_id, worker, label, version, capabilities, metadata, slots, slots_used, interval_seconds,
    missed_threshold, phase, status, metrics, warnings, started_at, beat_at)
  select 'filled', 'worker_' || n, 'worker', '1', '[]', '{{}}', 16, 0, 30, 3, 'idle', 'healthy', '{{}}', '[]', now(), now()
    from generate_series(1, {FINISHED_TURNS} / 5) n;
insert into circuit_breakers (project_id, type, target, state, generation, changed_at)
  select 'filled', 'tool_call', 'tool_' || n, 'closed', 0, now() from generate_series(1, {FINISHED_TURNS} / 5) n;
insert into circuit_calls (project_id, type, target, generation, agent_turn_id, call_id, status, ended_at)
  select 'filled', 'tool_call', 'tool_' || n, 0, 'done_' || n, 'c1', 'failure', now() from generate_series(1, {FINISHED_TURNS} / 5) n;
insert into rate_buckets (project_id, kind, name, tokens_max, seconds, full_at, last_start, peaks)
  select 'filled', 'tool', 'tool_' || n, 10, 1, 0, 0, '[]' from generate_series(1, {FINISHED_TURNS} / 5) n;
insert into budgets (project_id, turn_id, kind, amount_max, used)
  select 'filled', 'done_' || n, 'tokens', 100, 50 from generate_series(1, {FINISHED_TURNS} / 5) n;
insert into run_checkpoints (project_id, run_id, seq, state, memory, activations, in_progress)
  select 'filled', 'run_' || n, 9, '{{}}', '{{}}', 1, '{{}}' from generate_series(1, {FINISHED_TURNS} / 5) n;
insert into runs (project_id, run_id, target, status, request_hash, state, memory, signal_seq, open_turns, created_at, updated_at)
  values ('filled', 'run_long', '{TARGET}', 'running', '', '{{}}', '{{}}', 3000, 0, now(), now());
insert into signals (project_id, run_id, seq, count, entries, at)
  select 'filled', 'run_long', s, 1, '[{{"name": "note"}}]', now() from generate_series(1, 3000) s;
insert into run_checkpoints (project_id, run_id, seq, state, memory, activations, in_progress)
  select 'filled', 'run_long', s, '{{}}', '{{}}', 1, '{{7}}' from generate_series(1000, 2900, 100) s;
insert into run_feed (project_id, run_id) select 'filled', 'run_' || n from generate_series(1, {FINISHED_TURNS} / 5) n;
update subscriptions set feed_id = (select max(feed_id) from run_feed), entered_until = null;
insert into subscription_runs (project_id, name, run_id, position, has_news, lease_until)
  select 'filled', 'search', 'run_' || n, case n when 7 then 3 else 9 end, n = 7, now() from generate_series(1, {FINISHED_TURNS} / 5) n;
update agent_turns set budgets = array[agent_turn_id] where agent_turn_id in (select turn_id from budgets where used > 0);
analyze;
"""


async def filled_database(postgres: TestServer) -> str:
    """The URL of a new database with these turns, and a few open ones."""
    url = await postgres.create()
    connection = await connect(url)
    kernel = Kernel(connection, "filled")
    await fill(kernel)
    await kernel.running("run_k", "turn_k")
    await kernel.stop("turn_k", "graceful")
    await connection.execute("set search_path to heliograph")
    await connection.execute(FILL)
    await connection.close()
    return url


class Measured:
    """Calls whose reads are counted; each is undone."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel

    async def __call__(self, query: str, *args: object) -> tuple[int, set[str]]:
        """Rows read of all tables, and the indexes used."""
        undone = self.kernel.connection.transaction()
        await undone.start()
        read, scans = await self._counted()
        await self.kernel.connection.fetch(query, *args)
        read_after, scans_after = await self._counted()
        await undone.rollback()
        return read_after - read, {index for index, count in scans_after.items() if count > scans.get(index, 0)}

    async def _counted(self) -> tuple[int, dict[str, int]]:
        read = await self.kernel.connection.fetchval(
            "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) from pg_stat_xact_user_tables where schemaname = 'heliograph'"
        )
        used = await self.kernel.connection.fetch(
            "select relname, pg_stat_get_xact_numscans(oid) from pg_class"
            " where relkind = 'i' and relnamespace = 'heliograph'::regnamespace order by 1"
        )
        return int(read), {name: int(count) for name, count in used}
