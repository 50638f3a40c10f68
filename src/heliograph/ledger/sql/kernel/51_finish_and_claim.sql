-- finish_and_claim: end running turns, and claim further ones for their worker in the same transaction.
--   p_items: [{agent_id, turn_id, epoch, outcome, content, signals: [draft], reaction, recording, follows}]; see
--   finish.
--   p_targets, p_worker, p_lease_seconds: see claim. p_limit: how many turns the worker takes if all items end; it
--   takes one less for each item that does not.
--   Returns {finished, claimed}: the answers of finish and of claim.
--   raises: see finish and claim; then no turn has ended
--   locks:  those of finish, then those of claim, which waits only for the limits of a project with running_max
create function heliograph.finish_and_claim(
    p_project text, p_items jsonb, p_targets jsonb, p_worker text, p_limit integer, p_lease_seconds float8,
    p_now timestamptz
) returns json language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_finished constant jsonb := heliograph.finish(p_project, p_items, p_now);
    v_limit constant integer := p_limit - (
        select count(*) from jsonb_array_elements(v_finished) f where f ->> 'outcome' <> 'ok');
    v_claimed json := '[]';
begin
    if v_limit >= 1 or p_limit >= 1 is not true then  -- claim rejects a limit below 1
        v_claimed := heliograph.claim(p_project, p_targets, p_worker, v_limit, p_lease_seconds, p_now);
    end if;
    return json_build_object('finished', v_finished, 'claimed', v_claimed);
end $$;
