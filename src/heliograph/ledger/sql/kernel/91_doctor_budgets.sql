-- The doctor's checks of budgets and reservations.

-- _doctor_budgets: U1 to U3, and O for budgets.
create function heliograph._doctor_budgets(p_project text) returns table (found text, subject text)
    language sql stable as $$
    with b as (select * from heliograph.budgets where project_id = p_project),
         t as (select * from heliograph.agent_turns where project_id = p_project),
         w as (select * from heliograph.turn_waiting_tools where project_id = p_project and reserved is not null),
         h as (select o.owner as turn_id, k.key as kind, sum(heliograph._as_whole(k.value)) as reserved
                 from w join t using (agent_turn_id) cross join lateral unnest(t.budgets) o (owner)
                cross join lateral jsonb_each(case jsonb_typeof(w.reserved) when 'object' then w.reserved
                                              else '{}' end) k group by o.owner, k.key)
    select 'U1 what is reserved is held by open calls', b.turn_id || ' ' || b.kind from b left join h using (turn_id,
            kind)
     where b.reserved <> coalesce(h.reserved, 0)
    union all
    select 'U2 only an open call holds a reservation', w.agent_turn_id || ' ' || w.tool_call_id from w
     where w.state <> 'open' or w.kind <> 'inline'
    union all
    select 'U3 no budget is above its limit', b.turn_id || ' ' || b.kind from b where b.used + b.reserved > b.amount_max
    union all
    select 'O13 a budget has its turn', b.turn_id || ' ' || b.kind from b left join t on t.agent_turn_id = b.turn_id
     where not coalesce(b.turn_id = any (t.budgets), false)
$$;
