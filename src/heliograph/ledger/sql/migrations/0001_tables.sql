-- The tables of the kernel. Names follow the L0 specification; where it has none, design.md's.
--
-- Three truths, written together by every transition: agent_inbox is what is owed, signals is
-- what happened, cards is what was said. agent_state_head, agent_turns, turn_waiting_tools and runs are the
-- state that the kernel functions guard; nothing but those functions writes any table here.
--
-- project_id leads every key: two projects may use the same ids and never meet (S1). There are no foreign keys: each
-- would look up and lock a row that the writing function holds already; doctor looks for orphans instead.
-- A column whose change would touch an index costs a new entry in each index of its table (no HOT update), so what
-- changes often stays out of keys and of the predicates of partial indexes wherever it can.

create table heliograph.runs (
    project_id    text not null,
    run_id        text not null,
    target        text not null,                 -- the pool of workers that can execute it: the application's name
    status        text not null check (status in ('running', 'terminating', 'ended')),
    outcome       text check (outcome in ('success', 'failed', 'canceled', 'timeout', 'partial')),
    request_hash  text not null,                 -- of what started it: the same id with another request is refused
    state         jsonb not null,                -- the state document, rebuilt from the log by folding state:<key>:changed
    memory        jsonb not null,                -- what the reaction remembers between signals: joins half met
    version       bigint not null default 0,     -- raised by every change that a reaction depends on (K24)
    signal_seq    bigint not null default 0,     -- position of the newest signal; gapless, given under this row's lock
    pruned_seq    bigint not null default 0,     -- signals up to here are pruned
    open_turns    integer not null default 0,    -- turns queued or active (K27)
    activations   integer not null default 0,    -- turns ever enqueued: the loop guard of G-47
    owed          integer not null default 0,    -- signals that nobody has reacted to yet (K25)
    hears_reports boolean not null default false,  -- some agent wakes on tool:result: such a signal is owed
    stop_reason   text,                          -- why somebody asked for its end
    refusals      integer not null default 0,    -- how often a reaction that it owes was refused: those that work go first
    created_at    timestamptz not null,
    updated_at    timestamptz not null,
    ended_at      timestamptz,
    primary key (project_id, run_id),
    check ((status = 'ended') = (outcome is not null)),
    check ((status = 'ended') = (ended_at is not null)),
    check (open_turns >= 0 and owed >= 0),
    check (status <> 'ended' or (open_turns = 0 and owed = 0))  -- K26: it ends once nothing is open or owed
) with (fillfactor = 60);
-- serves sweep_owed
create index runs_owed on heliograph.runs (project_id, target, refusals, run_id) where owed > 0;
-- serves run_overview: the newest runs first; and prune
create index runs_recent on heliograph.runs (project_id, created_at desc, run_id);

create table heliograph.agent_state_head (
    project_id           text not null,
    agent_id             text not null,         -- run_id/agent name: every run has its own instances; a child's may have /instance
    run_id               text not null,
    agent_name           text not null,
    target               text not null,         -- copied from the run, so that claim needs no join
    status               text not null default 'idle'
                         check (status in ('idle', 'dispatched', 'running', 'suspended')),
    phase                text check (phase in ('init', 'plan', 'act', 'reflect', 'terminate')),
    active_agent_turn_id text,
    turn_epoch           bigint not null default 0,  -- the fencing token: raised by dispatch, claim, recovery and every end
    owner                text,
    lease_until          timestamptz,
    priority             smallint not null default 1 check (priority between 0 and 3),  -- low, normal, high, critical
    ready_at             timestamptz,           -- first ready time of the active turn; recovery keeps it (K22)
    due_at               timestamptz,           -- deferred: not to be claimed before; null: at once
    waiting_tool_count   integer not null default 0,  -- open waits of a suspended turn: it resumes at 0 (L0-20)
    resume_deadline      timestamptz,           -- the nearest deadline among them, to be shown; each wait has its own (G-63)
    resumes_on           text check (resumes_on in ('all', 'each')),  -- each: streaming join
    expecting_correlation_id text,              -- reserved (L0-19): the action that a ui_action leased the head for
    stop_requested_at    timestamptz,           -- a graceful stop: the owner ends the turn,
    force_at             timestamptz,           -- or sweep_stops does, from then on
    stop_reason          text,
    refusals             integer not null default 0,  -- how often a sweep failed on it: those that work go first
    trace_id             text,
    parent_step_id       text,                  -- the signal that woke the active turn
    moved_at             timestamptz not null,  -- last change of status; measured by sweep_bells, changed by no sweep for its sake
    primary key (project_id, agent_id),
    check ((status = 'idle') = (active_agent_turn_id is null)),
    check ((status = 'running') = (lease_until is not null)),
    check ((status = 'running') = (owner is not null)),
    check ((status = 'suspended') = (waiting_tool_count > 0)),
    check ((status = 'suspended') = (resumes_on is not null)),
    check (due_at is null or status = 'dispatched'),
    check ((stop_requested_at is null) = (force_at is null)),
    check (stop_requested_at is null or status = 'running')
) with (fillfactor = 50);
-- serves claim and sweep_bells
create index head_ready on heliograph.agent_state_head (project_id, target, priority desc, ready_at, agent_id)
    where status = 'dispatched' and due_at is null;
-- serves claim: deferred turns whose time has come
create index head_due on heliograph.agent_state_head (project_id, due_at) where due_at is not null;
-- serves sweep_leases
create index head_lease on heliograph.agent_state_head (project_id, lease_until) where status = 'running';
-- serves sweep_stops
create index head_stop on heliograph.agent_state_head (project_id, force_at) where force_at is not null;

create table heliograph.agent_turns (
    project_id          text not null,
    agent_turn_id       text not null,
    agent_id            text not null,
    run_id              text not null,
    queue_seq           bigint generated always as identity,  -- order within one agent: given under the head's lock
    state               text not null check (state in ('queued', 'active', 'done')),
    message_type        text not null default 'turn' check (message_type in ('turn', 'ui_action')),
    outcome             text check (outcome in ('success', 'failed', 'canceled', 'timeout', 'partial')),
    priority            smallint not null default 1,
    attempts            integer not null default 0,           -- recoveries so far
    max_attempts        integer not null check (max_attempts >= 1),
    defers              integer not null default 0,           -- how often it was put off
    card_count          integer not null default 0,           -- cards it has written, the deliverable apart
    depth               smallint not null default 0,          -- delegations above it (G-74)
    parent_turn_id      text,                                 -- the turn that waits for it, if one does,
    parent_call_id      text,                                 -- and the wait
    cause_seq           bigint not null,                      -- the signal that woke it
    activation_seq      bigint not null,                      -- its agent:activated; parent of what the turn emits
    context_box_id      text,                                 -- read-only input, where there is one
    output_box_id       text not null,
    result_fields       jsonb,                                -- what the deliverable must have (L0-84)
    actor               text,                                 -- who asked for it from outside
    deliverable_card_id text,
    created_at          timestamptz not null,
    expires_at          timestamptz not null,
    finished_at         timestamptz,
    primary key (project_id, agent_turn_id),
    check ((state = 'done') = (outcome is not null)),
    check ((state = 'done') = (deliverable_card_id is not null)),
    check ((state = 'done') = (finished_at is not null)),
    check ((parent_turn_id is null) = (parent_call_id is null))
) with (fillfactor = 70);
-- K21, the last line of defence: one active turn per agent
create unique index turn_one_active on heliograph.agent_turns (project_id, agent_id) where state = 'active';
-- serves _dispatch_next, _enqueue (queue length) and sweep_queued
create index turn_queued on heliograph.agent_turns (project_id, agent_id, queue_seq) where state = 'queued';
-- serves sweep_expired
create index turn_expiry on heliograph.agent_turns (project_id, expires_at) where state <> 'done';
-- serves turn_overview and prune
create index turn_of_run on heliograph.agent_turns (project_id, run_id, queue_seq);
-- serves prune: a box stays as long as a turn that read it
create index turn_context on heliograph.agent_turns (project_id, context_box_id) where context_box_id is not null;

create table heliograph.agent_inbox (
    project_id      text not null,
    agent_turn_id   text not null,
    inbox_id        bigint generated always as identity,
    agent_id        text not null,
    message_type    text not null check (message_type in ('turn', 'ui_action', 'tool_result', 'timeout', 'stop')),
    status          text not null check (status in
                    ('queued', 'pending', 'processing', 'deferred', 'consumed', 'duplicate', 'dead', 'canceled')),
    turn_epoch      bigint,                      -- written when the row is dispatched (L0-34), and again when it is claimed
    correlation_id  text not null,               -- the signal that caused the message; of a report, its call id
    applied         boolean not null default false,  -- the report that resolved its wait
    report_status   text check (report_status in ('success', 'failed', 'timeout', 'unknown', 'canceled')),
    payload_box_id  text,                        -- payload by pointer (L0-30); null: the causing signal is the payload
    payload_card_id text,                        -- of a report: its result (L0-106)
    payload         jsonb,                       -- only of an early report, until there is a wait that can judge it
    actor           text,                        -- who reported or stopped, where somebody did
    next_retry_at   timestamptz not null,
    retry_count     integer not null default 0,
    defer_reason    text,
    created_at      timestamptz not null,
    consumed_at     timestamptz,
    primary key (project_id, agent_turn_id, inbox_id)  -- and no index on what changes: updates are HOT
) with (fillfactor = 60);
-- K21: one applied report per call
create unique index inbox_one_applied on heliograph.agent_inbox (project_id, agent_turn_id, correlation_id) where applied;

create table heliograph.execution_edges (
    project_id     text not null,
    agent_turn_id  text not null,
    edge_id        bigint generated always as identity,
    primitive      text not null check (primitive in ('enqueue', 'report', 'join', 'tool_call')),
    edge_phase     text not null check (edge_phase in ('request', 'response')),
    run_id         text not null,
    agent_id       text not null,
    call_id        text,
    other_turn_id  text,                         -- join: the child's, on the parent's edge; enqueue: the parent's
    cause_id       text not null,                -- lineage: the signal behind it
    created_at     timestamptz not null,
    primary key (project_id, agent_turn_id, edge_id)
);

create table heliograph.cards (
    project_id    text not null,
    card_id       text not null,                -- derived from turn, epoch and position, so that a retry is the same card (K2)
    box_id        text not null,                -- where it was put; other boxes see it by being forked from that one
    position      bigint generated always as identity,
    agent_turn_id text,                         -- of the writer; null: put into a context box from outside
    turn_epoch    bigint,                       -- of the writer
    kind          text not null,
    content       jsonb not null,               -- or {"$blob": blob_id, "bytes": n}, over limits.card_bytes_max
    created_at    timestamptz not null,
    primary key (project_id, card_id),
    -- K21: one deliverable per turn, because it has one id
    check ((kind = 'task.deliverable') = coalesce(card_id = 'card:' || agent_turn_id || ':end', false)),
    check ((agent_turn_id is null) = (turn_epoch is null))
);
-- serves box_contents; the same for the first card and the ten thousandth
create index card_in_box on heliograph.cards (project_id, box_id, position);
-- serves prune: who needs a blob
create index card_of_blob on heliograph.cards (project_id, (content ->> '$blob')) where content ? '$blob';

create table heliograph.blobs (
    project_id text not null,
    blob_id    text not null,                   -- sha256:<hex> of the content as text
    bytes      integer not null,
    content    jsonb not null,
    created_at timestamptz not null,
    primary key (project_id, blob_id)
);
-- serves prune
create index blob_old on heliograph.blobs (project_id, created_at, blob_id);

create table heliograph.boxes (
    project_id     text not null,
    box_id         text not null,
    kind           text not null check (kind in ('context', 'output')),
    base_box_id    text,                        -- a fork sees the cards of its base,
    base_position  bigint,                      -- up to here
    writer_turn_id text,                        -- the only turn that may append to it; null for a context box
    hash           text,                        -- of the cards that it was put together with: another put is known by it
    created_at     timestamptz not null,
    primary key (project_id, box_id),
    check ((base_box_id is null) = (base_position is null)),
    check (kind = 'output' or writer_turn_id is null)
);
-- a turn's own output box, box_<turn>, has no row here: nobody else may write to it, and it has no base
-- all serve prune: what was forked stays as long as its forks, what a turn wrote goes with it, a context when nobody uses it
create index box_base on heliograph.boxes (project_id, base_box_id) where base_box_id is not null;
create index box_writer on heliograph.boxes (project_id, writer_turn_id) where writer_turn_id is not null;
create index box_old on heliograph.boxes (project_id, created_at, box_id) where kind = 'context';

create table heliograph.leases (
    project_id    text not null,
    agent_id      text not null,
    turn_epoch    bigint not null,
    agent_turn_id text not null,
    owner         text not null,
    started_at    timestamptz not null,
    ended_at      timestamptz,
    said          integer not null default 0,   -- drafts that this owner has appended: a retried append is known by it
    said_seq      bigint,                       -- log position of the first draft of the last append
    primary key (project_id, agent_id, turn_epoch)  -- a fencing token is given once, by constraint
) with (fillfactor = 70);

create table heliograph.turn_waiting_tools (
    project_id        text not null,
    agent_turn_id     text not null,
    tool_call_id      text not null,
    agent_id          text not null,
    run_id            text not null,
    position          bigint generated always as identity,  -- the order in which they were opened
    step_id           text,
    tool              text not null,
    kind              text not null check (kind in ('tool', 'inline', 'child', 'timer', 'human')),
    effect            text not null default 'once' check (effect in ('pure', 'idempotent', 'transactional', 'once')),
    state             text not null default 'open' check (state in ('open', 'resolved', 'closed')),  -- closed: the turn ended first
    epoch             bigint not null,              -- of the issuer: information (K5), but for an inline call the judge of K14
    deadline          timestamptz,                  -- of this wait alone (K11, G-63)
    token_hash        bytea,                        -- of the capability to report; null: whoever may call report may
    after_execution   text not null default 'suspend' check (after_execution in ('suspend', 'terminate')),
    may_override      boolean not null default false,
    child_turn_id     text,
    status            text check (status in ('success', 'failed', 'timeout', 'unknown', 'canceled')),
    result_card_id    text,
    resolved_position integer,                      -- the order of arrival within the turn, from 1
    duplicates        integer not null default 0,   -- reports that came after the one that counted
    opened_at         timestamptz not null,
    resolved_at       timestamptz,
    primary key (project_id, agent_turn_id, tool_call_id),
    check ((state = 'resolved') = (status is not null)),
    check ((state = 'resolved') = (resolved_position is not null)),
    check ((state = 'open') = (resolved_at is null)),
    check ((kind = 'child') = (child_turn_id is not null))
) with (fillfactor = 60);
-- serves sweep_waits
create index wait_due on heliograph.turn_waiting_tools (project_id, deadline)
    where state = 'open' and deadline is not null and kind <> 'inline';

create table heliograph.outbox (
    project_id    text not null,
    key           text not null,                -- the message id on the wire: a second copy is known by it
    outbox_id     bigint generated always as identity,
    kind          text not null check (kind in ('task_event', 'cmd', 'report', 'stop')),
    agent_turn_id text not null,
    call_id       text,                         -- of a cmd; of a report, the parent's
    tool          text,                         -- of a cmd
    subject       text,
    body          jsonb,                        -- pointers only (L0-86); null for a task event: read_outbox says it from the turn
    created_at    timestamptz not null,
    due_at        timestamptz not null,         -- on the wire: a cmd is delivered again and again until its wait is resolved (K18)
    hidden_until  timestamptz,                  -- from tools that ask, because one of them took it; the wire does not care
    deliveries    integer not null default 0,
    published_at  timestamptz,
    primary key (project_id, key)
);
-- serves read_outbox, sweep_reports and sweep_stops
create index outbox_unpublished on heliograph.outbox (project_id, kind, due_at, outbox_id) where published_at is null;
-- serves take_commands
create index outbox_commands on heliograph.outbox (project_id, tool, outbox_id) where published_at is null and kind = 'cmd';

create table heliograph.signals (
    project_id    text not null,
    run_id        text not null,
    seq           bigint not null,              -- of the first signal of one commit: the order of a run's log, and the tail of its id
    count         integer not null check (count > 0),
    entries       jsonb not null,               -- [{name, payload, agent, parent, at, owed}]; parent: an id, or the index of an earlier entry
    agent_turn_id text,
    at            timestamptz not null,         -- when it was written; never used for ordering
    owed          boolean not null default false,  -- nobody has reacted to those marked owed yet
    primary key (project_id, run_id, seq),
    check (jsonb_array_length(entries) = count)
) with (toast_tuple_target = 8160);
alter table heliograph.signals alter column entries set storage main;
-- serves sweep_owed and react
create index signals_owed on heliograph.signals (project_id, run_id, seq) where owed;

create table heliograph.project_limits (
    project_id        text not null primary key,  -- a null is the default of heliograph._limits
    queue_max         integer check (queue_max > 0),
    depth_max         integer check (depth_max >= 0),
    fan_out_max       integer check (fan_out_max > 0),
    cards_max         integer check (cards_max > 0),
    waits_max         integer check (waits_max > 0),
    payload_bytes_max integer check (payload_bytes_max > 0),
    card_bytes_max    integer check (card_bytes_max > 0),
    result_bytes_max  integer check (result_bytes_max > 0),
    blob_bytes_max    integer check (blob_bytes_max > 0),
    running_max       integer check (running_max > 0),
    defers_max        integer check (defers_max >= 0)
);

create table heliograph.pruned (
    project_id text not null,
    id         text not null,                   -- run:<id> or turn:<id>: what was, so that a late duplicate is still known
    hash       text,                            -- of a run: its request's
    outcome    text,
    pruned_at  timestamptz not null,
    primary key (project_id, id)
);
-- serves prune, which forgets these too in the end
create index pruned_old on heliograph.pruned (project_id, pruned_at, id);

-- The complete transition table of the head (kernel.md section 3, G-68). Nothing else changes a status: the page of
-- states is drawn from here, the simulator judges by it, and the test databases refuse any other change.
create table heliograph.head_transitions (
    move        text not null,
    from_status text not null,
    to_status   text not null,
    epoch_step  smallint not null check (epoch_step in (0, 1)),
    by          text not null,                  -- the kernel functions that make it
    note        text not null,
    primary key (move, from_status)
);
insert into heliograph.head_transitions (move, from_status, to_status, epoch_step, by, note) values
    ('dispatch', 'idle', 'dispatched', 1, '_enqueue, _dispatch_next', 'the oldest queued turn becomes the active one (K8, L0-34)'),
    ('claim', 'dispatched', 'running', 1, 'claim', 'a worker owns it; the epoch is its fencing token (K6, L0-45)'),
    ('suspend', 'running', 'suspended', 0, 'suspend', 'its waits are written, the lease is given back (K3, L0-55)'),
    ('resume', 'suspended', 'dispatched', 0, '_resolve, sweep_stuck', 'the last wait is resolved, or one of a streaming join (K15, L0-63)'),
    ('recover', 'running', 'dispatched', 1, 'sweep_leases', 'the lease ran out; it goes on from its cards (K7, L0-111)'),
    ('defer', 'running', 'dispatched', 1, 'defer', 'the owner puts it off (L0-64)'),
    ('release', 'running', 'dispatched', 1, 'release', 'the owner gives it back; no attempt is counted'),
    ('end', 'dispatched', 'idle', 1, '_terminal', 'stopped, or past its time to live, before a worker had it (K12, K19)'),
    ('end', 'running', 'idle', 1, '_terminal', 'finished by its owner; stopped, expired or given up by the kernel (K1, K12, K19)'),
    ('end', 'suspended', 'idle', 1, '_terminal', 'stopped, or past its time to live, while it waited (K12, K19)');

-- Text sorts by its bytes, whatever the locale of the database and of the next upgrade of its machine: locks are taken in
-- one order everywhere, and the agents of a run, run_id/.., lie side by side in the key.
do $$
declare
    v_table regclass;
    v_columns text;
begin
    for v_table, v_columns in
        select a.attrelid, string_agg(format('alter column %I type text collate "C"', a.attname), ', ' order by a.attnum)
          from pg_attribute a join pg_class c on c.oid = a.attrelid
         where c.relnamespace = 'heliograph'::regnamespace and c.relkind = 'r' and a.atttypid = 'text'::regtype and a.attnum > 0
           and exists (select from pg_attribute p where p.attrelid = c.oid and p.attname = 'project_id')
         group by a.attrelid order by a.attrelid
    loop
        execute format('alter table %s %s', v_table, v_columns);
    end loop;
end $$;
