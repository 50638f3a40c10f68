-- The typed rows of calls that one function of this kernel passes to the next one, see 21_new_rows.sql.

-- A call that its owner is about to begin: an item of begin_call, or an intent of record_call. Null for JSON null.
create type heliograph.new_call as (
    agent_id text, turn_id text, epoch bigint, call_id text, step_id text, tool text, effect text,
    timeout_seconds float8, taint jsonb, is_trusted boolean, reserve jsonb, circuit_breaker jsonb, rates jsonb
);

-- A new_call with its place among those of the request, its answer so far, and the columns of its row. wait_at: the row
-- that it has already. is_waiting: an earlier owner let it wait for its start. is_guarded: it has a reservation, a
-- breaker or rates.
create type heliograph.judged_call as (
    place integer, turn_id text, call_id text, step_id text, tool text, effect text, epoch bigint,
    timeout_seconds float8, taint jsonb, is_trusted boolean, opened_seq bigint, wait_at tid, is_waiting boolean,
    is_guarded boolean, verdict jsonb
);

-- The result of a call that is about to be recorded: of an item of record_call, with its place in the call, its
-- rejection, or else null, and what it changes. value: the result or the error. head_at: null if the head remains as it
-- is; wait_at: null if no call was begun; lease_at: null without new signals. written: how many of its signals are new,
-- after position base. position: in the order of results of the turn. taint: of the call from now on.
create type heliograph.judged_result as (
    place integer, rejection jsonb, turn_id text, epoch bigint, call_id text, status text, value jsonb, head_at tid,
    phase text, terminates boolean, run_at tid, lease_at tid, wait_at tid, box_id text, base bigint, written integer,
    pending integer, first_seq bigint, step_id text, tool text, is_trusted boolean, taint text[], position integer,
    is_reserved boolean, circuit jsonb
);

-- The result of a call that a turn waits for, see _resolve. output, error: one of them, null for the value null.
create type heliograph.call_result as (
    turn_id text, call_id text, status text, output jsonb, error jsonb, message_type text, actor text, inbox_id bigint,
    more jsonb, session text, is_canceled_sibling boolean, may_still_run boolean, trust text
);

-- A call_result whose wait is open, and what it changes. place: its index among the results. continues_without: the
-- turn continues although the delegated turn, or the work of the command, may not have ended. seq: of its signal.
-- position: in the order of results of the turn. early_at: the message of an early report. head_at: null, unless the
-- turn is suspended on the call. content: of its card; entry: of the log.
create type heliograph.resolved_result as (
    place bigint, turn_id text, call_id text, status text, value jsonb, message_type text, actor text, session text,
    more jsonb, continues_without boolean, seq bigint, agent_id text, run_id text, child_turn_id text, kind text,
    tool text, trust text, after_execution text, circuit jsonb, opened_at timestamptz, box_id text, epoch bigint,
    agent text, parent text, is_pending boolean, position integer, wait_at tid, early_at tid, run_at tid, head_at tid,
    card_id text, content jsonb, entry jsonb
);
