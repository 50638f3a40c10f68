-- The typed rows that one function of this kernel passes to the next one. The place of a row is the index of its item
-- among the items of the call.

-- A run that is about to be started: an item of start_runs, and its place in the call. fork is null for none.
create type heliograph.new_run as (
    place integer, run_id text, target text, request_hash text, agents jsonb, wakes_on_results boolean,
    callback_url text, signals jsonb, reaction jsonb, fork jsonb, recording jsonb
);

-- A turn that is about to be queued. ttl_seconds and starts_at count from the commit; budgets: the owners of those that
-- apply to the turn. target: of the run, for an agent that may have no head yet.
create type heliograph.new_turn as (
    run_id text, agent text, agent_id text, target text, turn_id text, message_type text, priority smallint, pool text,
    max_attempts integer, ttl_seconds float8, starts_at timestamptz, depth smallint, parent_turn_id text,
    parent_call_id text, cause_id text, cause_seq bigint, activation_seq bigint, context_box_id text,
    result_fields jsonb, actor text, budgets text[], callback_url text
);

-- An item of suspend. The columns from place on are those that _read_suspend finds: its place in the call, the state of
-- its turn, and the rows that it changes.
create type heliograph.suspension as (
    run_id text, agent_id text, turn_id text, epoch bigint, phase text, cards jsonb, signals jsonb, resumes_on text,
    seen bigint, terminates boolean, calls jsonb, recording jsonb,
    place integer, head_at tid, moved_at timestamptz, stop_requested_at timestamptz, stop_reason text,
    turn_at tid, box_id text, card_count integer, budgets text[], run_at tid, base bigint,
    lease_at tid, written integer, pending integer, first_seq bigint, known bigint, is_early boolean
);

-- The turn of an item of defer: its place in the call, and the rows that a deferral changes, see _read_deferrals.
-- released_at: the end of its lease.
create type heliograph.deferral as (
    place integer, agent_id text, turn_id text, head_at tid, released_at timestamptz, stop_requested_at timestamptz,
    stop_reason text, turn_at tid, defer_count integer, lease_at tid
);
