-- The tables of the kernel. Names follow the L0 specification; where it has none, design.md's.
--
-- Three truths, written together by every transition: agent_inbox is what is owed, signals is
-- what happened, cards is what was said. agent_state_head, agent_turns and runs are the state that
-- the kernel functions guard; nothing but those functions writes any table here.
--
-- project_id leads every key: two projects may use the same ids and never meet (S1).

create table heliograph.runs (
    project_id   text not null,
    run_id       text not null,
    target       text not null,                 -- the pool of workers that can execute it: the application's name
    status       text not null check (status in ('running', 'terminating', 'ended')),
    outcome      text check (outcome in ('success', 'failed', 'canceled', 'timeout', 'partial')),
    request_hash text not null,                 -- of what started it: the same id with another request is refused
    state        jsonb not null,                -- the state document, rebuilt from the log by folding state:<key>:changed
    memory       jsonb not null,                -- what the reaction remembers between signals: joins half met
    version      bigint not null default 0,     -- raised by every change that a reaction depends on (K24)
    signal_seq   bigint not null default 0,     -- position of the newest signal; gapless, given under this row's lock
    open_turns   integer not null default 0,    -- turns queued or active (K27)
    activations  integer not null default 0,    -- turns ever enqueued: the loop guard of G-47
    owed         integer not null default 0,    -- signals that nobody has reacted to yet (K25)
    created_at   timestamptz not null,
    updated_at   timestamptz not null,
    ended_at     timestamptz,
    primary key (project_id, run_id),
    check ((status = 'ended') = (outcome is not null)),
    check ((status = 'ended') = (ended_at is not null)),
    check (open_turns >= 0 and owed >= 0),
    check (status <> 'ended' or (open_turns = 0 and owed = 0))  -- K26: it ends once nothing is open or owed
) with (fillfactor = 70);
-- serves sweep_owed
create index runs_owed on heliograph.runs (project_id, target, run_id) where owed > 0;
-- serves run_overview: the newest runs first
create index runs_recent on heliograph.runs (project_id, created_at desc, run_id);

create table heliograph.agent_state_head (
    project_id           text not null,
    agent_id             text not null,         -- run_id/agent name: every run has its own instances
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
    trace_id             text,
    parent_step_id       text,                  -- the signal that woke the active turn
    moved_at             timestamptz not null,  -- last change of status; measured by sweep_bells, changed by no sweep for its sake
    primary key (project_id, agent_id),
    foreign key (project_id, run_id) references heliograph.runs,
    check ((status = 'idle') = (active_agent_turn_id is null)),
    check ((status = 'running') = (lease_until is not null)),
    check ((status = 'running') = (owner is not null))
) with (fillfactor = 50);
-- serves claim and sweep_bells
create index head_ready on heliograph.agent_state_head (project_id, target, priority desc, ready_at, agent_id)
    where status = 'dispatched';
-- serves sweep_leases
create index head_lease on heliograph.agent_state_head (project_id, lease_until) where status = 'running';

create table heliograph.agent_turns (
    project_id          text not null,
    agent_turn_id       text not null,
    agent_id            text not null,
    run_id              text not null,
    queue_seq           bigint generated always as identity,  -- order within one agent: given under the head's lock
    state               text not null check (state in ('queued', 'active', 'done')),
    outcome             text check (outcome in ('success', 'failed', 'canceled', 'timeout', 'partial')),
    priority            smallint not null default 1,
    attempts            integer not null default 0,           -- recoveries so far
    max_attempts        integer not null check (max_attempts >= 1),
    cause_seq           bigint not null,                      -- the signal that woke it
    activation_seq      bigint not null,                      -- its agent:activated; parent of what the turn emits
    context_box_id      text,                                 -- read-only input, where there is one
    output_box_id       text not null,
    deliverable_card_id text,
    created_at          timestamptz not null,
    expires_at          timestamptz not null,
    finished_at         timestamptz,
    primary key (project_id, agent_turn_id),
    foreign key (project_id, agent_id) references heliograph.agent_state_head,
    check ((state = 'done') = (outcome is not null)),
    check ((state = 'done') = (deliverable_card_id is not null)),
    check ((state = 'done') = (finished_at is not null))
) with (fillfactor = 70);
-- K21, the last line of defence: one active turn per agent
create unique index turn_one_active on heliograph.agent_turns (project_id, agent_id) where state = 'active';
-- serves _dispatch_next and sweep_queued
create index turn_queued on heliograph.agent_turns (project_id, agent_id, queue_seq) where state = 'queued';
-- serves sweep_expired
create index turn_expiry on heliograph.agent_turns (project_id, expires_at) where state <> 'done';
-- serves turn_overview
create index turn_of_run on heliograph.agent_turns (project_id, run_id, queue_seq);

create table heliograph.agent_inbox (
    inbox_id       bigint generated always as identity primary key,
    project_id     text not null,
    agent_id       text not null,
    agent_turn_id  text not null,
    message_type   text not null check (message_type in ('turn', 'ui_action', 'tool_result', 'timeout', 'stop')),
    status         text not null check (status in
                   ('queued', 'pending', 'processing', 'deferred', 'consumed', 'duplicate', 'dead', 'canceled')),
    turn_epoch     bigint,                      -- written when the row is dispatched (L0-34), and again when it is claimed
    correlation_id text not null,               -- the signal that caused the message
    payload_box_id text,                        -- payload by pointer (L0-30); null: the causing signal is the payload
    next_retry_at  timestamptz not null,
    retry_count    integer not null default 0,
    defer_reason   text,
    created_at     timestamptz not null,
    consumed_at    timestamptz
);
-- serves claim, _dispatch_next and _terminal: what one agent still owes
create index inbox_open on heliograph.agent_inbox (project_id, agent_id, next_retry_at, inbox_id)
    where status in ('queued', 'pending', 'processing', 'deferred');

create table heliograph.execution_edges (
    edge_id       bigint generated always as identity primary key,
    project_id    text not null,
    primitive     text not null check (primitive in ('enqueue', 'report', 'join', 'tool_call')),
    edge_phase    text not null check (edge_phase in ('request', 'response')),
    run_id        text not null,
    agent_id      text not null,
    agent_turn_id text not null,
    cause_id      text not null,                -- lineage: the signal behind it
    created_at    timestamptz not null
);

create table heliograph.cards (
    project_id    text not null,
    card_id       text not null,                -- derived from turn, epoch and position, so that a retry is the same card (K2)
    agent_turn_id text not null,
    turn_epoch    bigint not null,              -- of the writer
    kind          text not null,
    content       jsonb not null,
    created_at    timestamptz not null,
    primary key (project_id, card_id),
    foreign key (project_id, agent_turn_id) references heliograph.agent_turns
);
create unique index card_one_deliverable on heliograph.cards (project_id, agent_turn_id) where kind = 'task.deliverable';

create table heliograph.box_cards (
    project_id text not null,
    box_id     text not null,
    position   bigint generated always as identity,
    card_id    text not null,
    primary key (project_id, box_id, position),
    foreign key (project_id, card_id) references heliograph.cards
);

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
);

create table heliograph.outbox (
    outbox_id     bigint generated always as identity primary key,
    project_id    text not null,
    kind          text not null check (kind in ('task_event')),
    key           text not null,                -- the message id on the wire: a second copy is known by it
    subject       text not null,
    agent_turn_id text not null,
    body          jsonb not null,               -- pointers only (L0-86)
    created_at    timestamptz not null,
    published_at  timestamptz,
    unique (project_id, key)
);
-- serves read_outbox
create index outbox_unpublished on heliograph.outbox (project_id, outbox_id) where published_at is null;

create table heliograph.signals (
    project_id    text not null,
    run_id        text not null,
    seq           bigint not null,              -- the order of a run's log, and the tail of the signal's id
    name          text not null,
    payload       jsonb not null,
    at            timestamptz not null,         -- when it was said, by its source's clock; never used for ordering
    agent         text,
    parent_id     text,
    agent_turn_id text,
    owed          boolean not null default false,  -- nobody has reacted to it yet
    primary key (project_id, run_id, seq),      -- no foreign key: _write_signals holds the run's lock, a check per row is dear
    check ((parent_id is null) = (seq = 1))     -- each signal but the root has a parent
);
-- serves sweep_owed
create index signals_owed on heliograph.signals (project_id, run_id, seq) where owed;
