-- finish_and_claim: end running turns, and claim further ones for their worker in the same transaction.
--   p_items: {agent_id, turn_id, epoch, outcome, content, version, signals: [draft], reaction, recording, follows}, as
--   one array for each key; see finish.
--   p_targets, p_worker, p_lease_seconds: see claim. p_limit: how many turns the worker takes if all items end; it
--   takes one less for each item that does not.
--   Returns {finished, claimed}: the answers of finish and of claim. A column of finish that is null is a missing key.
--   raises: see finish and claim; then no turn has ended
--   locks:  those of finish, then those of claim, which waits only for the limits of a project with running_max
create function heliograph.finish_and_claim(
    p_project text, p_agent_id text[], p_turn_id text[], p_epoch bigint[], p_outcome text[], p_content jsonb[],
    p_version bigint[], p_signals jsonb[], p_reaction jsonb[], p_recording text[], p_follows text[], p_target text[],
    p_pool text[], p_agents jsonb[], p_run_id text[], p_worker text, p_limit integer, p_lease_seconds float8,
    p_now timestamptz
) returns json language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_finished jsonb;
    v_limit integer;
    v_claimed json := '[]';
begin
    select jsonb_agg(jsonb_strip_nulls(to_jsonb(f) - '{run,n}'::text[])
                     || case when f.run is null then '{}' else jsonb_build_object('run', f.run) end order by f.n),
           p_limit - count(*) filter (where f.outcome <> 'ok')
      into v_finished, v_limit
      from heliograph.finish(p_project, p_agent_id, p_turn_id, p_epoch, p_outcome, p_content, p_version, p_signals,
                             p_reaction, p_recording, p_follows, p_now)
           with ordinality f (turn_id, outcome, targets, woken, run, code, message, n);
    if v_limit >= 1 or p_limit >= 1 is not true then  -- claim rejects a limit below 1
        v_claimed := heliograph.claim(p_project, p_target, p_pool, p_agents, p_run_id, p_worker, v_limit,
                                      p_lease_seconds, p_now);
    end if;
    return json_build_object('finished', coalesce(v_finished, '[]'), 'claimed', v_claimed);
end $$;
