-- Checkpoints of runs: state and memory at some positions of a log, so that a fork folds few signals (decision 0082).

-- _crosses_checkpoint: whether a commit that moves a run's log from one position to another may need a checkpoint.
create function heliograph._crosses_checkpoint(p_before bigint, p_after bigint) returns boolean
    language sql immutable as $$
    select p_before / 256 < p_after / 256
$$;

-- _checkpoint: record the state and the memory of a run at its newest signal, if the log since its last checkpoint has
--   at least 50 times their size, so that checkpoints take at most two per cent of a log. Runs with pending reactions
--   wait for the commit of their reaction, because their memory lags behind their log; runs that end need none. It
--   looks when the distance reaches or passes 256 signals, 512, 1,024, and so on, so that a large state costs few
--   looks. p_before: the position before the first signal recorded since the last commit without pending reactions.
--   The caller holds the run, and has appended a whole commit.
create function heliograph._checkpoint(p_project text, p_run_id text, p_before bigint) returns void
    language plpgsql as $$
declare
    v_run heliograph.runs;
    v_last heliograph.run_checkpoints;
    v_after bigint;
    v_before bigint;    -- the distance from the last checkpoint to p_before, in 256 signals
    v_distance bigint;  -- and to the newest signal
    v_bytes bigint;     -- that the log has to have
    v_memory jsonb;
    v_open bigint[];
    v_ends boolean;
begin
    select * into v_run from heliograph.runs where project_id = p_project and run_id = p_run_id;
    if v_run.status <> 'running' or v_run.pending_reactions > 0 then
        return;
    end if;
    select * into v_last from heliograph.run_checkpoints
     where project_id = p_project and run_id = p_run_id order by seq desc limit 1;
    v_after := coalesce(v_last.seq, v_run.forked_seq, 0);
    v_distance := v_run.signal_seq / 256 - v_after / 256;
    v_before := greatest(0, p_before / 256 - v_after / 256);
    if v_before # v_distance <= v_before then
        return;
    end if;
    select coalesce(jsonb_object_agg(m.key, m.value), '{}') into v_memory
      from jsonb_each(heliograph._as_object(v_run.memory)) m
     where m.key in ('joins', 'join_signals', 'join_base', 'turns', 'failed', 'partial', 'skipped', 'untrusted_keys',
                     'session')
       and m.value not in ('{}', '[]', '0', 'null');  -- a reader has these defaults
    v_bytes := 50 * (100 + octet_length(p_project) + octet_length(p_run_id) + pg_column_size(v_run.state)
                     + pg_column_size(v_memory) + 8 * v_run.open_turns);
    -- the newest commits alone are read if they suffice
    if not exists (select from (
               select sum(pg_column_size(entries)) over (order by seq desc rows unbounded preceding) as bytes
                 from heliograph.signals where project_id = p_project and run_id = p_run_id and seq > v_after) l
             where l.bytes >= v_bytes) then
        return;
    end if;
    with entry as materialized (
        select s.seq, s.seq + e.n - 1 as at, e.entry ->> 'name' as name, e.entry -> 'parent' as parent
          from heliograph.signals s cross join lateral jsonb_array_elements(s.entries) with ordinality e (entry, n)
         where s.project_id = p_project and s.run_id = p_run_id and s.seq > v_after
           and e.entry ->> 'name' in ('agent:activated', 'agent:completed', 'agent:failed', 'workflow:terminating',
                                      'workflow:end')
    ), ended as (
        select case jsonb_typeof(parent) when 'number' then seq + parent::bigint
                    else substring(parent #>> '{}' from '(?:_|^)([0-9]{1,18})$')::bigint end as at
          from entry where name in ('agent:completed', 'agent:failed')
    )
    select array(select a.at from (select unnest(v_last.in_progress) union all
                                   select at from entry where name = 'agent:activated') a (at)
                  where a.at <> all (array(select e.at from ended e where e.at is not null)) order by a.at),
           exists (select from entry where name in ('workflow:terminating', 'workflow:end'))
      into v_open, v_ends;
    if not v_ends then
        insert into heliograph.run_checkpoints (project_id, run_id, seq, state, memory, activations, in_progress)
        values (p_project, p_run_id, v_run.signal_seq, v_run.state, v_memory, v_run.activations, v_open);
    end if;
end $$;
