-- Calls that also claim: a process whose worker has free slots takes the turns that its own call has woken. They have
-- the rights of their caller, so the two functions that they call check its rights and its project. The worker
-- makes no other claim meanwhile, so they wait only briefly for locks that others hold; the caller then makes its call
-- alone.

-- start_and_claim: start runs, and claim turns for a worker of the caller in the same transaction.
--   p_items: {run_id, target, request_hash, agents: [name], wakes_on_results, callback_url, signals: [draft],
--   reaction, fork, recording}, as one array for each key; see start_runs.
--   p_claim_target, p_claim_pool, p_claim_agents, p_claim_run_id: the targets of the claim; these, p_worker, p_limit
--   and p_lease_seconds: see claim.
--   Returns {started, claimed}: the answers of start_runs and of claim. A column of start_runs that is null is a
--   missing key. The caller needs the right to execute both.
--   raises: see start_runs and claim, and 55P03 after a wait of 200 ms for a lock; then no run has started
--   locks:  those of start_runs, then those of claim, which waits only for the limits of a project with running_max
create function heliograph.start_and_claim(
    p_project text, p_run_id text[], p_target text[], p_request_hash text[], p_agents jsonb[],
    p_wakes_on_results boolean[], p_callback_url text[], p_signals jsonb[], p_reaction jsonb[], p_fork jsonb[],
    p_recording jsonb[], p_claim_target text[], p_claim_pool text[], p_claim_agents jsonb[], p_claim_run_id text[],
    p_worker text, p_limit integer, p_lease_seconds float8, p_now timestamptz
) returns json language plpgsql security invoker set search_path = pg_catalog, pg_temp
    set lock_timeout = '200ms' as $$
declare
    v_started json;
begin
    select json_agg(jsonb_strip_nulls(to_jsonb(s) - 'n') order by s.n) into v_started
      from heliograph.start_runs(p_project, p_run_id, p_target, p_request_hash, p_agents, p_wakes_on_results,
                                 p_callback_url, p_signals, p_reaction, p_fork, p_recording, p_now)
           with ordinality s (run_id, outcome, code, message, targets, woken, n);
    return json_build_object('started', coalesce(v_started, '[]'), 'claimed', heliograph.claim(
        p_project, p_claim_target, p_claim_pool, p_claim_agents, p_claim_run_id, p_worker, p_limit, p_lease_seconds,
        p_now));
end $$;

-- report_and_claim: record the results of calls, and claim turns for a worker of the caller in the same transaction.
--   p_items: {turn_id, call_id, token, status, result, error, actor, may_still_run}, as one array for each key; see
--   report.
--   p_targets, p_worker, p_limit, p_lease_seconds: see claim.
--   Returns {reported, claimed}: the answers of report and of claim. A column of report that is null is a missing key.
--   The caller needs the right to execute both.
--   raises: see report and claim, and 55P03 after a wait of 200 ms for a lock; then no result is recorded
--   locks:  those of report, then those of claim, which waits only for the limits of a project with running_max
create function heliograph.report_and_claim(
    p_project text, p_turn_id text[], p_call_id text[], p_token text[], p_status text[], p_result jsonb[],
    p_error jsonb[], p_actor text[], p_may_still_run boolean[], p_target text[], p_pool text[], p_agents jsonb[],
    p_run_id text[], p_worker text, p_limit integer, p_lease_seconds float8, p_now timestamptz
) returns json language plpgsql security invoker set search_path = pg_catalog, pg_temp
    set lock_timeout = '200ms' as $$
declare
    v_reported json;
begin
    select json_agg(jsonb_strip_nulls(to_jsonb(r) - 'n') order by r.n) into v_reported
      from heliograph.report(p_project, p_turn_id, p_call_id, p_token, p_status, p_result, p_error, p_actor,
                             p_may_still_run, p_now)
           with ordinality r (turn_id, call_id, outcome, resumed, targets, woken, code, message, n);
    return json_build_object('reported', coalesce(v_reported, '[]'), 'claimed', heliograph.claim(
        p_project, p_target, p_pool, p_agents, p_run_id, p_worker, p_limit, p_lease_seconds, p_now));
end $$;
