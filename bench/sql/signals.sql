-- A log of many signals: commits of ten, as the end of a turn writes them. Each agent was activated by the signal that
-- the turn before emitted, so three of ten signals lie on the chain of causes of the newest.

create function pg_temp.fill(p_run_id text, p_first integer, p_last integer) returns void language sql as $$
    insert into heliograph.signals (project_id, run_id, seq, count, entries, agent_turn_id, at)
    select 'bench', p_run_id, 10 * (n - 1) + 1, 10,
           jsonb_build_array(
               jsonb_build_object('name', case n when 1 then 'workflow:start' else 'ready' end, 'agent', 'writer',
                                  'parent', case n when 1 then null else 'sig_' || p_run_id || '_' || 10 * (n - 1) end,
                                  'payload', '{"version": "1", "capabilities": []}'::jsonb)
               || case n when 1 then '{"agent": null}' else '{}'::jsonb end,
               '{"name": "plan_ready", "agent": "writer", "parent": 0, "payload": {"steps": 1, "tools_required": []}}'::jsonb,
               '{"name": "tool:call", "agent": "writer", "parent": 0, "payload": {"id": "c1", "name": "search", "input": {"query": "heliograph"}}}'::jsonb,
               '{"name": "tool:result", "agent": "writer", "parent": 2, "payload": {"id": "c1", "name": "search", "status": "success", "output": ["one", "two"]}}'::jsonb,
               '{"name": "action_complete", "agent": "writer", "parent": 0, "payload": {"steps_executed": 1, "success": true}}'::jsonb,
               '{"name": "terminated", "agent": "writer", "parent": 0, "payload": {"status": "success", "outputs": ["a draft of a few words"]}}'::jsonb,
               jsonb_build_object('name', 'agent:completed', 'agent', 'writer', 'payload', '{"agent": "writer", "output": "a draft of a few words"}'::jsonb,
                                  'parent', case n when 1 then '0'::jsonb else to_jsonb('sig_' || p_run_id || '_' || 10 * (n - 1)) end),
               jsonb_build_object('name', 'state:score:changed', 'agent', 'writer', 'parent', 6, 'payload', jsonb_build_object('value', n)),
               '{"name": "draft:ready", "agent": "writer", "parent": 6, "payload": {"output": "a draft of a few words"}}'::jsonb,
               '{"name": "agent:activated", "agent": "writer", "parent": 8, "payload": {"agent": "writer", "guard": {"verdict": true, "reads": [{"key": "score", "value": 7}]}}}'::jsonb),
           'turn_' || p_run_id, '2030-01-01'
      from generate_series(p_first, p_last) n;
$$;

create function pg_temp.add_run(p_run_id text, p_commits integer) returns void language sql as $$
    insert into heliograph.runs (project_id, run_id, target, status, outcome, request_hash, state, memory, signal_seq,
                                 created_at, updated_at, ended_at)
    values ('bench', p_run_id, 'bench', 'ended', 'success', '', '{}', '{}', 10 * p_commits, now(), now(), now());
    insert into heliograph.agent_turns (project_id, agent_turn_id, agent_id, run_id, state, outcome, max_attempts, cause_seq,
        activation_seq, output_box_id, created_at, expires_at, finished_at)
    values ('bench', 'turn_' || p_run_id, p_run_id || '/writer', p_run_id, 'done', 'success', 3, 1, 2, 'box', now(), now(), now());
$$;
