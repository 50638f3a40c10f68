-- Columns, indexes and stored keys get the standard terms of the field. No value changes its meaning.

alter table heliograph.runs rename column owed to pending_reactions;  -- signals that no reaction covers yet
alter table heliograph.runs rename column hears_reports to wakes_on_results;  -- some agent subscribes to tool:result
alter table heliograph.runs rename column refusals to rejections;  -- reactions of the run that were rejected in a row
alter table heliograph.signals rename column owed to is_pending;  -- some of its entries wait for a reaction
alter table heliograph.agent_state_head rename column refusals to sweep_failures;  -- sweeps that failed on its turn
alter table heliograph.agent_turns rename column defers to defer_count;
alter table heliograph.agent_turns rename column people_since to human_wait_since;  -- null: it does not wait for people
alter table heliograph.agent_turns rename column people_time to human_wait_time;  -- ended waits for people, in all
alter table heliograph.leases rename column said to signals_emitted;  -- a repeated append is recognized by this count
alter table heliograph.leases rename column said_seq to last_append_seq;  -- the first position of the last append
alter table heliograph.budgets rename column most to amount_max;
alter table heliograph.budgets rename column over to overspent;  -- used beyond what was reserved and what remained
alter table heliograph.project_limits rename column defers_max to deferrals_max;  -- deferrals of one turn

alter index heliograph.runs_owed rename to runs_pending;
alter index heliograph.signals_owed rename to signals_pending;

-- PostgreSQL names a constraint after its column: runs_owed_not_null, budgets_over_check. Which ones exist depends on
-- its version.
do $$
declare
    v_constraint record;
begin
    for v_constraint in
        select c.conrelid::regclass as relation, c.conname as old_name,
               format('%s_%s_%s', t.relname, m.new_name,
                      substr(c.conname, length(t.relname || m.old_name) + 3)) as new_name
          from pg_constraint c
          join pg_class t on t.oid = c.conrelid
          join (values ('runs', 'owed', 'pending_reactions'), ('runs', 'hears_reports', 'wakes_on_results'),
                       ('runs', 'refusals', 'rejections'), ('signals', 'owed', 'is_pending'),
                       ('agent_state_head', 'refusals', 'sweep_failures'), ('agent_turns', 'defers', 'defer_count'),
                       ('agent_turns', 'people_since', 'human_wait_since'),
                       ('agent_turns', 'people_time', 'human_wait_time'), ('leases', 'said', 'signals_emitted'),
                       ('leases', 'said_seq', 'last_append_seq'), ('budgets', 'most', 'amount_max'),
                       ('budgets', 'over', 'overspent'),
                       ('project_limits', 'defers_max', 'deferrals_max')) m (relation, old_name, new_name)
            on m.relation = t.relname and c.conname in (format('%s_%s_not_null', m.relation, m.old_name),
                                                        format('%s_%s_check', m.relation, m.old_name))
         where t.relnamespace = 'heliograph'::regnamespace order by c.oid
    loop
        execute format('alter table %s rename constraint %I to %I', v_constraint.relation, v_constraint.old_name,
                       v_constraint.new_name);
    end loop;
end $$;

-- Entries of the log carry the mark as well. It is read only while its row is pending, so other rows keep the old key.
update heliograph.signals s
   set entries = (select jsonb_agg(case when jsonb_typeof(e.entry) = 'object' and e.entry ? 'owed'
                                        then e.entry - 'owed' || jsonb_build_object('is_pending', e.entry -> 'owed')
                                        else e.entry end order by e.n)
                    from jsonb_array_elements(s.entries) with ordinality e (entry, n))
 where s.is_pending;

-- A canceled call of an open turn names the call that failed first: its parent reads that when it continues.
update heliograph.cards c
   set content = c.content || jsonb_build_object('error', (c.content -> 'error') - 'failed_first' || jsonb_build_object(
                     'first_failed_call', c.content #> '{error,failed_first}'))
  from heliograph.turn_waiting_tools w
  join heliograph.agent_turns t on t.project_id = w.project_id and t.agent_turn_id = w.agent_turn_id
 where t.state <> 'done' and w.status = 'canceled' and c.project_id = w.project_id and c.card_id = w.result_card_id
   and jsonb_typeof(c.content -> 'error') = 'object' and c.content -> 'error' ? 'failed_first';

-- The same for a result that is stored as a blob. The card keeps the document itself from now on: an error of a canceled
-- call is short, and the id of a blob is the hash of its content.
update heliograph.cards c
   set content = b.content || jsonb_build_object('error', (b.content -> 'error') - 'failed_first' || jsonb_build_object(
                     'first_failed_call', b.content #> '{error,failed_first}'))
  from heliograph.turn_waiting_tools w
  join heliograph.agent_turns t on t.project_id = w.project_id and t.agent_turn_id = w.agent_turn_id
  join heliograph.blobs b on b.project_id = w.project_id
 where t.state <> 'done' and w.status = 'canceled' and c.project_id = w.project_id and c.card_id = w.result_card_id
   and jsonb_typeof(c.content) = 'object' and b.blob_id = c.content ->> '$blob'
   and jsonb_typeof(b.content -> 'error') = 'object' and b.content -> 'error' ? 'failed_first';

-- The table of transitions is printed in the documentation.
insert into heliograph.head_transitions (move, from_status, to_status, epoch_step, by, note) values
    ('suspend', 'running', 'suspended', 0, 'suspend', 'its calls are recorded, the lease ends (K3, L0-55)'),
    ('recover', 'running', 'dispatched', 1, 'sweep_leases',
     'the lease expired; another worker continues from its cards (K7, L0-111)'),
    ('defer', 'running', 'dispatched', 1, 'defer', 'the owner defers the turn (L0-64)'),
    ('release', 'running', 'dispatched', 1, 'release', 'the owner releases the turn; no attempt is counted'),
    ('end', 'dispatched', 'idle', 1, '_terminal',
     'stopped, or past its time to live, before a worker claimed it (K12, K19)'),
    ('end', 'running', 'idle', 1, '_terminal',
     'finished by its owner; stopped, expired or ended as failed by the kernel (K1, K12, K19)')
on conflict (move, from_status) do update set note = excluded.note;
