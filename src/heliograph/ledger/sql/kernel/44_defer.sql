-- Deferring: an owner that cannot continue now releases its turn until a later time (L0-64, G-71). No process waits.

-- defer: defer running turns: a worker claims them again after a delay (L0-64). The head becomes dispatched under the
--   next epoch and keeps its place in the claim order. A deferral counts as no attempt.
--   p_items: [{agent_id, turn_id, epoch, reason, delay_seconds, deferrals_max, trust, terminates}].
--   deferrals_max null: the project's limit. trust: 'untrusted', if the turn has read untrusted content that its
--   reason may quote. The inbox records the time, the reason and the count.
--   Returns [{turn_id, outcome, targets}] in the order of p_items. 'deferred', with due_at. 'exhausted': the turn was
--   deferred deferrals_max times before, and has ended as failed. 'stopped': a graceful stop was pending and has ended
--   the turn. 'stopping', with stop: see suspend, also for terminates. 'stale'.
--   raises: see _enter; 22023 for a delay that is not between 0 and 366 days, a number of deferrals that is negative
--   locks:  the heads, then the runs
create function heliograph.defer(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_limits heliograph.project_limits := heliograph._limits(p_project);
    v_item jsonb;
    v_answer jsonb := '[]';
begin
    perform heliograph._check_json(p_items);
    perform heliograph._check_keys('p_items[]', p_items,
        '{agent_id,turn_id,epoch,reason,delay_seconds,deferrals_max,trust,terminates}');
    perform heliograph._check_type('p_items[]', p_items, 'terminates', 'boolean');
    if exists (select from jsonb_array_elements(p_items) i
                where not coalesce((i ->> 'delay_seconds')::float8 between 0 and 31622400, false)) then
        raise exception using errcode = '22023', message = 'delay_seconds must be between 0 and 366 days';
    elsif exists (select from jsonb_array_elements(p_items) i where (i ->> 'deferrals_max')::integer < 0) then
        raise exception using errcode = '22023', message = 'deferrals_max must be 0 or more, or null';
    elsif exists (select from jsonb_array_elements(p_items) i
                   where not coalesce(i ->> 'trust' in ('trusted', 'untrusted'), true)) then
        raise exception using errcode = '22023', message = 'trust must be trusted or untrusted';
    end if;
    perform heliograph._lock_items(p_project, p_items);
    for v_item in select item from jsonb_array_elements(p_items) with ordinality i (item, n) order by n loop
        v_answer := v_answer || (jsonb_build_object('turn_id', v_item -> 'turn_id', 'targets', '[]'::jsonb)
                                 || heliograph._defer(p_project, v_item, v_limits.deferrals_max, p_now));
    end loop;
    return v_answer;
end $$;

-- _defer: one item of defer; see there. Returns {outcome, ..}.
--   The caller holds the head and the run.
create function heliograph._defer(
    p_project text, p_item jsonb, p_deferrals_max integer, p_now timestamptz
) returns jsonb
    language plpgsql as $$
declare
    v_due_at timestamptz := p_now + make_interval(secs => (p_item ->> 'delay_seconds')::float8);
    v_reason text := left(p_item ->> 'reason', 1000);
    v_most integer := coalesce((p_item ->> 'deferrals_max')::integer, p_deferrals_max);
    v_terminates constant boolean := coalesce((p_item ->> 'terminates')::boolean, false);
    v_defers integer;
    v_woken text[];
    v_stop jsonb;
begin
    if not heliograph._owns(p_project, p_item ->> 'agent_id', p_item ->> 'turn_id', (p_item ->> 'epoch')::bigint) then
        return '{"outcome": "stale"}';
    end if;
    if v_terminates then
        select heliograph._stop_order(stop_reason, stop_requested_at) into v_stop from heliograph.agent_state_head
         where project_id = p_project and agent_id = p_item ->> 'agent_id' and stop_requested_at is not null;
        if v_stop is not null then
            return jsonb '{"outcome": "stopping"}' || v_stop;
        end if;
    end if;
    v_woken := heliograph._end_if_stopping(p_project, p_item ->> 'agent_id', p_now);
    if v_woken is not null then
        return jsonb_build_object('outcome', 'stopped') || heliograph._bells(p_project, v_woken);
    end if;
    select defer_count into v_defers from heliograph.agent_turns
     where project_id = p_project and agent_turn_id = p_item ->> 'turn_id';
    if v_defers >= v_most then
        v_woken := heliograph._end_by_kernel(p_project, p_item ->> 'turn_id', 'failed', 'RESOURCE_EXHAUSTED',
            format('the turn would be deferred %s times; at most %s are allowed: remove the cause, or raise %s. '
                   'The last reason: %s', v_defers + 1, v_most, case when p_item ->> 'deferrals_max' is null
                   then 'the limit with helio db limits defers_max=NUMBER' else 'the retries of the agent' end,
                   v_reason),
            p_now, p_is_untrusted => coalesce(p_item ->> 'trust' = 'untrusted', false));
        return jsonb_build_object('outcome', 'exhausted') || heliograph._bells(p_project, v_woken);
    end if;
    update heliograph.agent_turns set defer_count = defer_count + 1
     where project_id = p_project and agent_turn_id = p_item ->> 'turn_id';
    update heliograph.agent_inbox
       set status = 'deferred', retry_count = retry_count + 1, next_retry_at = v_due_at, defer_reason = v_reason
     where project_id = p_project and agent_turn_id = p_item ->> 'turn_id' and status = 'processing';
    perform heliograph._release_head(p_project, p_item ->> 'agent_id', v_due_at, p_now);
    update heliograph.agent_state_head set terminates = v_terminates
     where project_id = p_project and agent_id = p_item ->> 'agent_id' and terminates <> v_terminates;
    return jsonb_build_object('outcome', 'deferred', 'due_at', v_due_at);
end $$;
