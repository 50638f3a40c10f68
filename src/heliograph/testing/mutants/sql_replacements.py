"""The SQL mutants: for each, pairs of a text in the kernel and the text that replaces it."""

from __future__ import annotations

from collections.abc import Mapping

_FORGET_EVENT = "delete from heliograph.outbox o where o.project_id = p_project and o.key = any ({keys});\n"
_ENDED_BY_OWNER = "if v_has_next then\nv_woken := heliograph._dispatch_next("
_ENDED_BY_KERNEL = (
    "update heliograph.runs set open_turns = open_turns - 1\nwhere project_id = p_project and run_id = v_turn.run_id;"
)

REPLACED: Mapping[str, tuple[tuple[str, str], ...]] = {
    "no_bump": (
        ("turn_epoch = h.turn_epoch + 1, owner = p_worker", "turn_epoch = h.turn_epoch, owner = p_worker"),
        ("set status = 'dispatched', turn_epoch = turn_epoch + 1, owner = null", "set status = 'dispatched', owner = null"),
        ("set status = 'dispatched', turn_epoch = h.turn_epoch + 1, owner = null", "set status = 'dispatched', owner = null"),
    ),
    "ungated_append": (
        ("select case when h.at is null then '{\"outcome\": \"stale\"}'\nelse coalesce(\ncase when i.drafts > 0",
         "select case when false then '{\"outcome\": \"stale\"}'\nelse coalesce(\ncase when i.drafts > 0"),
    ),
    "append_repeats": (("x.signals_emitted > p_signals_emitted[n] as has_drafts", "false as has_drafts"),
                       ("coalesce(x.signals_emitted > p_signals_emitted[u.n], false) as has_drafts from heliograph.leases x\nwhere i.drafts > 0",
                        "false as has_drafts from heliograph.leases x\nwhere i.drafts > 0")),
    "no_lease_sweep": (
        ("where h.project_id = p_project and h.status = 'running' and h.lease_until <= p_now", "where false"),
    ),
    "attempts_unbounded": (("if v_attempts < v_max then", "if true then"),),
    "recovery_loses_place": (
        ("due_at = p_due_at, moved_at = v_now", "due_at = p_due_at, ready_at = v_now, moved_at = v_now"),
        ("moved_at = d.released_at,\nterminates =", "moved_at = d.released_at, ready_at = d.released_at,\nterminates ="),
    ),
    "finish_splits_event": (
        (_ENDED_BY_OWNER, _FORGET_EVENT.format(keys="array(select 'evt:' || p_turn_id[e] from unnest(v_ended) e)") + _ENDED_BY_OWNER),
    ),
    "kernel_end_without_event": ((_ENDED_BY_KERNEL, _FORGET_EVENT.format(keys="array['evt:' || p_turn_id]") + _ENDED_BY_KERNEL),),
    "any_pool": (("h.due_at is null and h.target = t.name\nand h.pool = t.pool", "h.due_at is null and h.target = t.name"),
                 ("h.due_at <= p_now and h.target = t.name\nand h.pool = t.pool", "h.due_at <= p_now and h.target = t.name")),
    "phase_end_lost": (("perform heliograph._open_recorded(p_project, p_results, p_now);", "null;"),),
    "phase_signals_lost": (
        ("where jsonb_array_length(p_signals[n]) > 0", "where p_open_as[n] ->> 'tool' is null and jsonb_array_length(p_signals[n]) > 0"),
        ("when v.rejection is null and l.has_drafts is not true", "when v.rejection is null and l.has_drafts is not true and p_open_as[n] ->> 'tool' is null"),
    ),
    "terminates_forgotten": (("h.terminates or coalesce(p_terminates[n], false)", "h.terminates"),),
    "no_bell_sweep": (("h.target = r.target and h.pool = r.pool and h.moved_at <= v_before)", "false)"),
                      ("where h.project_id = p_project and h.due_at <= v_before) late", "where false) late")),
    "enqueue_no_dedup": (
        ("elsif exists (select from heliograph.agent_turns\n"
         "where project_id = p_project and agent_turn_id = p_message ->> 'turn_id') then", "elsif false then"),
    ),
    "dispatch_lifo": (("order by q.queue_seq limit 1) t", "order by q.queue_seq desc limit 1) t"),),
    "result_fields_unchecked": (("if v_rejection is null and p_fields is not null then", "if false then"),),
    "no_version_guard": (
        ("elsif v_item.version is distinct from p_version[v_item.n]  -- a missing one never matches\nor", "elsif"),
    ),
    "follows_unchecked": (("and not p_follows[v_item.n] = any (v_turns_ended)", "and false"),),
    "follows_rejected": (
        ("if v_item.step > 0 and v_runs[v_item.n] = any (v_failed) and v_item.is_owned then", "if false then"),
    ),
    "react_unguarded": (
        ("and r.run_id = p_run_id and r.version = p_version;\n"
         "if v_base is null or jsonb_typeof(p_reaction) is distinct from 'object' then", "and r.run_id = p_run_id;\nif false then"),
    ),
    "ends_with_open_turns": (
        ("'memory', p_run.memory, 'open_turns', p_run.open_turns,", "'memory', p_run.memory, 'open_turns', least(p_run.open_turns, 1),"),
    ),
    "open_turns_miscounted": ((_ENDED_BY_KERNEL, ""),),
    "finish_no_gate": (
        ("where x.project_id = p_project and x.agent_id = p_agent_id[p.n] and x.status = 'running'\n"
         "and x.active_agent_turn_id = p_turn_id[p.n] and x.turn_epoch = p_epoch[p.n] offset 0) h on true",
         "where x.project_id = p_project and x.agent_id = p_agent_id[p.n]\n"
         "and x.active_agent_turn_id = p_turn_id[p.n] offset 0) h on true"),
    ),
    "no_ttl_sweep": (
        ("where t.project_id = p_project and t.state <> 'done' and t.human_wait_since is null and t.expires_at <= p_now and h.sweep_failures = 0", "where false"),
    ),
    "limit_leaves_turns": (("if v_stops is not null then", "if false then"),),
    "human_wait_counts": (
        ("coalesce(t.human_wait_time, '0') + case when f.resumes then f.waited else '0' end", "coalesce(t.human_wait_time, '0')"),
        ("expires_at = t.expires_at + case when f.resumes then f.waited else '0' end", "expires_at = t.expires_at"),
    ),
    "parent_time_counts": (("if v_waited is null or p_turn.expires_at + v_waited <= p_now then", "if true then"),),
    "no_dispatch_timeout": (("if v_before is null then\nreturn v_found;", "if true then\nreturn v_found;"),),
    "message_clears_taint": (("return p_memory || jsonb_build_object('activations_before', p_activations);",
                              "return p_memory - 'untrusted_keys' || jsonb_build_object('activations_before', p_activations);"),),
    "no_chain": (("where x.project_id = p_project and x.agent_id = u.a and x.status = 'idle' offset 0) h", "where false offset 0) h"),),
    "no_pending_reactions": (
        ("v_pending integer := (select count(*) from jsonb_array_elements(p_entries) e where (e ->> 'is_pending')::boolean);",
         "v_pending integer := 0;"),
    ),
    "fork_forgets_results": (("where (w.is_known\nor (w.w).effect", "where (not w.is_known\nand (w.w).effect"),),
    "fork_forgets_calls": (("where (w.is_known\nor (w.w).effect <> 'pure' and", "where (w.is_known\nor false and (w.w).effect <> 'pure' and"),),
    "fork_has_later_results": (("and coalesce(x.resolved_seq <= u.upto, x.resolved_at <= p_at) as is_known", "as is_known"),),
    "fork_splits_commit": (("if v_commit.seq + v_commit.count - 1 <> v_seq then", "if false then"),),
    "fork_changes_origin": (
        ("perform from heliograph.runs\nwhere project_id = p_project and run_id = any (v_owners) order by run_id for key share;",
         "update heliograph.runs set version = version + 1\nwhere project_id = p_project and run_id = any (v_owners);"),
    ),
    "no_wait_cas": (
        ("when w.state = 'open' then 'applied'", "when true then 'applied'"),
        ("where y.project_id = p_project and y.agent_turn_id = x.turn_id and y.tool_call_id = x.call_id\nand y.state = 'open' offset 0) w",
         "where y.project_id = p_project and y.agent_turn_id = x.turn_id and y.tool_call_id = x.call_id offset 0) w"),
    ),
    "epoch_gate": (
        ("select x.kind, x.state, x.status, x.token_hash from", "select x.kind, x.state, x.status, x.token_hash, x.epoch from"),
        ("then 'bad_token'",
         "then 'bad_token' when w.epoch <> (\n"
         "select max(l.turn_epoch) from heliograph.leases l where l.project_id = p_project and l.agent_id = t.agent_id\n"
         "and l.agent_turn_id = p_turn_id[i.n]) then 'duplicate'"),
    ),
    "early_dropped": (
        ("when w.kind is null and (heliograph._wrong_id(", "when w.kind is null and (true or heliograph._wrong_id("),
    ),
    "early_forgotten": (
        ("if v_results is not null then\nperform heliograph._resolve(p_project, heliograph._call_results(v_results), octet_length(v_results::text),\np_limits, p_now);\nend if;\n"
         "update heliograph.agent_inbox m set status = 'dead'", "update heliograph.agent_inbox m set status = 'dead'"),
    ),
    "no_token": (
        ("(w.token_hash is not null\nand w.token_hash is distinct from sha256(convert_to(p_token[i.n], 'UTF8')))", "false"),
    ),
    "child_not_reported": (("and x.parent_turn_id is not null offset 0) t;", "and false offset 0) t;"),),
    "no_fail_fast": (("if v_result.status is distinct from 'success' then", "if false then"),),
    "children_run_on": (("filter (where w.child_turn_id is not null)", "filter (where false)"),),
    "children_forced": (("'mode', 'graceful', 'grace_seconds', extract(", "'mode', 'force', 'grace_seconds', extract("),),
    "force_softened": (("and excluded.body ->> 'mode' = 'force' and outbox.body ->> 'mode' <> 'force'",
                        "and (excluded.body ->> 'mode' <> 'force' or outbox.body ->> 'mode' <> 'force')"),),
    "no_report_sweep": (
        ("where x.project_id = p_project and x.kind = 'report' and x.published_at is null and x.due_at <= p_now", "where false"),
    ),
    "prune_needed": (
        ("bool_and(s.at < p_before and s.seq + s.count <= coalesce(v_needed, s.seq + s.count))", "bool_and(s.at < p_before)"),
    ),
    "no_recheck": (
        ("heliograph._open_waits(p_project, i.turn_id) o",
         "(select count(*) as waits, min(x.deadline) as deadline, bool_and(x.kind = 'human') as is_human\n"
         "from heliograph.turn_waiting_tools x\n"
         "where x.project_id = p_project and x.agent_turn_id = i.turn_id and x.kind <> 'inline' offset 0) o"),
        ("where o.waits > 0 and not (i.resumes_on = 'each' and case", "where o.waits > 0 and not (false and case"),
    ),
    "no_timeout_sweep": (
        ("where w.project_id = p_project and w.state = 'open' and w.kind <> 'inline' and w.deadline <= p_now and h.sweep_failures = 0",
         "where false"),
    ),
    "resume_at_once": (("o.waits = 0 or p_resumes_on = 'each' as resumes", "true as resumes"),),
    "commands_die": (
        ("set published_at = case when o.kind = 'cmd' then null else p_now end, deliveries = o.deliveries + 1,\n"
         "due_at = case when o.kind = 'cmd' then heliograph._redelivery_at(o.deliveries, p_now) else o.due_at end",
         "set published_at = p_now, deliveries = o.deliveries + 1"),
    ),
    "blind_retry": (("when w.effect in ('pure', 'idempotent', 'transactional') then '{\"outcome\": \"again\"}'", "when true then '{\"outcome\": \"again\"}'"),),
    "defer_uncapped": (("when v_turn.defer_count >= coalesce(", "when false and v_turn.defer_count >= coalesce("),),
    "cycles_allowed": (("from queue q where q.agent_id in (select a.agent_id from ancestor a)", "from queue q where false"),),
    "stop_no_check": (
        ("elsif v_turn.state = 'done' then\nreturn jsonb_build_object('outcome', 'already_done', 'turn_outcome', v_turn.outcome);",
         ""),
    ),
    "stop_not_delivered": (
        ("case when r.stop_requested_at is not null", "case when false"),
    ),
    "no_stop_sweep": (
        ("v_answer := heliograph._sweep_each(p_project, 'stop', v_due,", "v_answer := heliograph._sweep_each(p_project, 'stop', '{}'::text[],"),
    ),
    "stop_lost": (("elsif p_item.stop_requested_at is not null then\nreturn '{\"outcome\": \"stopped\"}';", ""),),
    "stop_forgotten": (
        ("if v_head.stop_requested_at is null then\nreturn null;\nend if;",
         "update heliograph.agent_state_head set stop_requested_at = null, force_at = null, stop_reason = null\n"
         "where project_id = p_project and agent_id = p_agent_id;\nreturn null;"),
    ),
    "force_delayed": (
        ("force_at = least(force_at, v_force_at),", "force_at = v_force_at,"),
        ("and (force_at is null or force_at > v_force_at);", ";"),
    ),
    "stopped_run_wakes": (("where x.status <> 'running'  -- a session", "where false  -- a session"),),
    "reserve_ignored": (("and b.used + b.reserved + b.overspent + (p_asked -> b.kind)::bigint > b.amount_max",
                         "and b.used + b.overspent + (p_asked -> b.kind)::bigint > b.amount_max"),),
    "reserve_kept": (("w.agent_turn_id = any (p_turn_ids) and w.reserved is not null", "false"),),
    "commands_free": (("update heliograph.budgets b set used = b.used + s.count", "update heliograph.budgets b set used = b.used"),),
    "trials_unbounded": (("if v_calls >= heliograph._as_whole(p_circuit -> 'half_open_max_calls') then", "if false then"),),
    "trials_kept": (("and (c.expires_at <= p_now or w.state = 'closed')", "and false"),),
    "open_admits": (
        ("select p_breaker.state = 'open' and p_now >= p_breaker.changed_at and p_now < p_breaker.open_until", "select false"),
        ("if v_breaker.state = 'open' then\nreturn heliograph._reject_circuit(p_circuit, 'open', v_breaker.open_until, p_now);\nelsif", "if"),
    ),
    "rate_ignored": (("(greatest(v_now, heliograph._full_at(b, x.count, x.seconds, x.interval_ns, v_now)\n+ (x.amount - x.count) * x.interval_ns) + 999) / 1000 * 1000", "v_now"),),
    "tokens_free": (("full_at = greatest(f.full_at, v_start) + r.amount * r.interval_ns", "full_at = greatest(f.full_at, v_start)"),),
    "rejected_taken_over": (
        ("where p_answers[c.ordinality] ->> 'outcome' = 'again'",
         "where p_answers[c.ordinality] ->> 'outcome' in ('again', 'rejected')"),
    ),
    "failures_forgotten": (("where not r.is_trial and r.verdict = 'failure' and", "where false and"),),
    "depth_unbounded": (("from queue q where v_depth > p_limits.depth_max", "from queue q where false"),
                        ("elsif (p_message ->> 'depth')::integer > p_limits.depth_max then", "elsif false then")),
    "queue_unbounded": (("where w.queued + w.more > p_limits.queue_max", "where false"),),
    "cards_unbounded": (("and t.card_count + jsonb_array_length(p_cards) > p_limits.cards_max) end)", "and false) end)"),),
    "running_unbounded": (("if v_running_max is not null then", "if false then"),),
}  # fmt: skip
