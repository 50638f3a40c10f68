-- Budgets of a turn and of its delegated turns: tokens, micros (millionths of a dollar), model calls and tool calls.
-- Before a call begins, it reserves its maximum in each budget that applies to its turn. Recording the call settles the
-- reservation.
--
-- Only turns of one run share a budget, and every function that reads or changes a budget has locked that run. So
-- budgets need no locks and no lock order of their own. The owners (agent_turns.budgets) are the turns whose budgets
-- apply to a turn: itself and its parents, as far as they have one. A turn without owners costs nothing.

-- _wrong_amounts: null, or the problem of amounts by kind.
create function heliograph._wrong_amounts(p_what text, p_amounts jsonb) returns text
    language sql immutable as $$
    select case when jsonb_typeof(p_amounts) not in ('object', 'null') or p_amounts = '{}'
                  or exists (select from jsonb_each(case jsonb_typeof(p_amounts) when 'object' then p_amounts
                                                    else '{}' end) a
                              where a.key not in ('tokens', 'micros', 'model_calls', 'tool_calls')
                                 or jsonb_typeof(a.value) <> 'number'
                                 or case jsonb_typeof(a.value) when 'number' then a.value::numeric end
                                    not between 0 and 1e15
                                 or case jsonb_typeof(a.value) when 'number' then a.value::numeric % 1 end <> 0)
                then p_what || ' has one or more of tokens, micros, model_calls and tool_calls, each '
                               'a whole number from 0 to 1e15' end
$$;

-- _open_budgets: create the budgets of turns that are about to be queued.
--   raises: 23505 for a turn id that was used before
--   The caller holds the runs.
create function heliograph._open_budgets(p_project text, p_activations jsonb) returns void
    language plpgsql as $$
begin
    insert into heliograph.budgets (project_id, turn_id, kind, amount_max)
    select p_project, a.item ->> 'turn_id', k.key, k.value::bigint
      from jsonb_array_elements(p_activations) with ordinality a (item, n)
     cross join lateral jsonb_each(nullif(a.item -> 'budget', 'null')) k
     order by a.n, k.key;
end $$;

-- _budget_of: the declared budget of a turn; null for none.
create function heliograph._budget_of(p_project text, p_turn_id text) returns jsonb
    language sql stable as $$
    select jsonb_object_agg(b.kind, b.amount_max) from heliograph.budgets b
     where b.project_id = p_project and b.turn_id = p_turn_id
$$;

-- _reserve: reserve the maximum amounts of calls that begin. A reservation is made in every budget or in none.
--   p_opened: whether begin_call has just opened the call. p_answers: its answers so far.
--   Returns p_answers. The answer of a call that exceeds a budget is 'rejected' with the code BUDGET_EXCEEDED and the
--   budget. It releases its trial, and if it is new, it is not open: see _unbegin. If a call begins again, an earlier
--   owner may have made it: the earlier reservation counts as used, except for its tool calls, because it remains one
--   call of its tool.
--   The caller holds the heads and the runs.
create function heliograph._reserve(
    p_project text, p_calls heliograph.new_call[], p_opened boolean[], p_answers jsonb[]
) returns jsonb[] language plpgsql as $$
declare
    v_call heliograph.new_call;
    v_name text;
    v_outcome text;
    v_lacking jsonb;
    v_rejected jsonb := '{}';
begin
    for n in 1 .. cardinality(p_calls) loop
        v_call := p_calls[n];
        v_name := v_call.turn_id || ':' || v_call.call_id;
        v_outcome := p_answers[n] ->> 'outcome';
        v_lacking := null;
        if v_rejected ? v_name and v_outcome <> 'stale' then
            v_lacking := v_rejected -> v_name;
        elsif v_call.reserve is not null and v_outcome in ('fresh', 'again') then
            v_lacking := heliograph._reserve_call(p_project, v_call.turn_id, v_call.call_id, v_call.reserve,
                                                  v_outcome = 'again');
        end if;
        if v_lacking is not null and (p_opened[n] or v_outcome = 'again') then
            perform heliograph._unbegin(p_project, v_call.turn_id, v_call.call_id, p_opened[n]);
            v_rejected := v_rejected || jsonb_build_object(v_name, v_lacking);
        end if;
        if v_lacking is not null then
            p_answers[n] := p_answers[n] - 'circuit' || v_lacking;
        end if;
    end loop;
    return p_answers;
end $$;

-- _reserve_call: null, or the rejection of one reservation; see _reserve. A call keeps a reservation that it has made
--   under the same epoch. The tool calls of a call that begins again are counted already. If its new reservation is
--   rejected, it keeps an empty one as the mark of that.
--   The caller holds the head and the run.
create function heliograph._reserve_call(p_project text, p_turn_id text, p_call_id text, p_asked jsonb,
                                         p_is_again boolean)
    returns jsonb language plpgsql as $$
declare
    v_owners text[];
    v_reserved jsonb;
    v_asked jsonb := p_asked;
    v_lacking jsonb;
begin
    select t.budgets into v_owners from heliograph.agent_turns t
     where t.project_id = p_project and t.agent_turn_id = p_turn_id;
    if v_owners is null then
        return null;
    end if;
    select w.reserved into v_reserved from heliograph.turn_waiting_tools w
     where w.project_id = p_project and w.agent_turn_id = p_turn_id and w.tool_call_id = p_call_id;
    if v_reserved <> '{}' and not p_is_again then
        return null;
    elsif v_reserved is not null then
        perform heliograph._settle(p_project, p_turn_id, p_call_id, null);
        v_asked := p_asked - 'tool_calls';
    end if;
    v_lacking := heliograph._shortfall(p_project, v_owners, v_asked);
    if v_lacking is not null then
        update heliograph.turn_waiting_tools set reserved = '{}' where v_reserved is not null
           and project_id = p_project and agent_turn_id = p_turn_id and tool_call_id = p_call_id;
        return v_lacking;
    end if;
    update heliograph.budgets b set reserved = b.reserved + (v_asked -> b.kind)::bigint
     where b.project_id = p_project and b.turn_id = any (v_owners) and v_asked ? b.kind;
    update heliograph.turn_waiting_tools set reserved = v_asked
     where project_id = p_project and agent_turn_id = p_turn_id and tool_call_id = p_call_id;
    return null;
end $$;

-- _shortfall: null, or the rejection of a reservation by the first budget of these owners that has too little left.
--   The caller holds the run.
create function heliograph._shortfall(p_project text, p_owners text[], p_asked jsonb) returns jsonb
    language sql stable as $$
    select heliograph._rejection('BUDGET_EXCEEDED',
                                 format('the budget of turn %s has %s of %s %s left; this call needs %s: '
                                        'start the turn with a larger budget',
                                        b.turn_id, greatest(b.amount_max - b.used - b.reserved - b.overspent, 0),
                                        b.amount_max, b.kind, p_asked ->> b.kind))
           || jsonb_build_object('budget', jsonb_build_object(
                  'turn_id', b.turn_id, 'kind', b.kind, 'amount_max', b.amount_max, 'used', b.used,
                  'reserved', b.reserved, 'overspent', b.overspent))
      from heliograph.budgets b
     where b.project_id = p_project and b.turn_id = any (p_owners) and p_asked ? b.kind
       and b.used + b.reserved + b.overspent + (p_asked -> b.kind)::bigint > b.amount_max
     order by b.turn_id, b.kind limit 1
$$;

-- _remaining: the remaining amount by kind: the least among the budgets of these owners.
create function heliograph._remaining(p_project text, p_owners text[]) returns jsonb
    language sql stable as $$
    select jsonb_object_agg(l.kind, l.amount)
      from (select b.kind, min(greatest(b.amount_max - b.used - b.reserved - b.overspent, 0)) as amount
              from heliograph.budgets b
             where b.project_id = p_project and b.turn_id = any (p_owners) group by b.kind) l
$$;

-- _new_commands: the number of new calls of external tools in an item of suspend.
create function heliograph._new_commands(p_project text, p_turn_id text, p_calls jsonb) returns bigint
    language sql stable as $$
    select count(*) from jsonb_array_elements(p_calls) c (call)
     where c.call ->> 'kind' = 'tool' and not exists (
           select from heliograph.turn_waiting_tools w
            where w.project_id = p_project and w.agent_turn_id = p_turn_id
              and w.tool_call_id = c.call ->> 'call_id')
$$;

-- _reject_commands: null, or the rejection of an item of suspend whose tool calls exceed a budget of these owners.
--   The caller holds the run.
create function heliograph._reject_commands(
    p_project text, p_turn_id text, p_calls jsonb, p_owners text[]
) returns jsonb language sql stable as $$
    select heliograph._shortfall(p_project, p_owners, jsonb_build_object('tool_calls', n))
      from heliograph._new_commands(p_project, p_turn_id, p_calls) n where n > 0
$$;

-- _spend_commands: count the tool calls of an item of suspend, before these calls are opened. They count as used at
--   once, because each command is sent. p_owners: of the budgets.
--   The caller holds the heads and the runs.
create function heliograph._spend_commands(
    p_project text, p_turn_id text, p_calls jsonb, p_owners text[]
) returns void language plpgsql as $$
begin
    update heliograph.budgets b set used = b.used + s.count
      from (select x.at, n.count
              from heliograph._new_commands(p_project, p_turn_id, p_calls) n (count)
             cross join lateral (
                   select y.ctid as at from heliograph.budgets y
                    where y.project_id = p_project and y.turn_id = any (p_owners) and y.kind = 'tool_calls' offset 0) x
             where n.count > 0) s
     where b.ctid = s.at;
end $$;

-- _settle: replace the reservation of a call by the amounts that it used. p_used: amounts by kind; a kind that is not
--   named counts as used up. An amount above the limit of a budget is recorded as overspent, so `used` never exceeds
--   the limit. The caller holds the head and the run.
create function heliograph._settle(p_project text, p_turn_id text, p_call_id text, p_used jsonb) returns void
    language plpgsql as $$
begin
    update heliograph.budgets b
       set reserved = b.reserved - s.reserved,
           used = b.used + least(s.used, b.amount_max - b.used - b.reserved + s.reserved),
           overspent = b.overspent + s.used - least(s.used, b.amount_max - b.used - b.reserved + s.reserved)
      from (select x.ctid as at, coalesce(heliograph._as_whole(w.reserved -> x.kind), 0) as reserved,
                   coalesce((p_used -> x.kind)::bigint, heliograph._as_whole(w.reserved -> x.kind), 0) as used
              from heliograph.agent_turns t
              join heliograph.turn_waiting_tools w
                on w.project_id = p_project and w.agent_turn_id = t.agent_turn_id and w.tool_call_id = p_call_id
             cross join lateral (
                   select y.ctid, y.kind from heliograph.budgets y
                    where y.project_id = p_project and y.turn_id = any (t.budgets) offset 0) x
             where t.project_id = p_project and t.agent_turn_id = p_turn_id) s
     where b.ctid = s.at and (s.reserved > 0 or s.used > 0);
    update heliograph.turn_waiting_tools set reserved = null
     where project_id = p_project and agent_turn_id = p_turn_id and tool_call_id = p_call_id and reserved is not null;
end $$;

-- _settle_ended: settle the remaining reservations of ended turns. A call that began and was never recorded may have
--   happened, and even a repeatable call costs. So its whole reservation counts as used. The caller holds the heads and
--   the runs.
create function heliograph._settle_ended(p_project text, p_turn_ids text[]) returns void
    language plpgsql as $$
begin
    perform heliograph._settle(p_project, o.agent_turn_id, o.tool_call_id, null)
       from (select w.agent_turn_id, w.tool_call_id from heliograph.turn_waiting_tools w
              where w.project_id = p_project and w.agent_turn_id = any (p_turn_ids) and w.reserved is not null
              order by w.agent_turn_id, w.position) o;
end $$;

-- budget_overview: the budgets of turns by kind
create view heliograph.budget_overview as
select b.project_id, b.turn_id, b.kind, b.amount_max, b.used, b.reserved, b.overspent from heliograph.budgets b;
