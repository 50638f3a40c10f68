-- Long-term memory: what agents keep beyond their turns and runs, searched by words.

-- No index of words (GIN): row security binds the functions, too, and lets nothing but leakproof operators find rows ahead of
-- its own check; a comparison of words is none. So a search looks at each memory that the agent may see, newest first, and
-- memories_max bounds how many these are.
create table heliograph.memories (
    project_id text collate "C" not null,
    memory_id  text collate "C" not null,       -- chosen by whoever remembers: the same id is the same memory
    agent      text collate "C",                -- whose it is, by the agent's name; null: the project's, for all its agents
    text       text collate "C" not null,
    metadata   jsonb not null check (jsonb_typeof(metadata) = 'object'),
    created_at timestamptz not null,
    expires_at timestamptz,                     -- null: kept until it is forgotten
    -- each word as it is, for every language, and as English takes it: "meetings" is found by "meeting", "the" by nothing
    words      tsvector not null generated always as (to_tsvector('simple', text) || to_tsvector('english', text)) stored,
    primary key (project_id, memory_id)
);
-- serves recall and remember: one agent's, or the project's, the newest first
create index memory_of_agent on heliograph.memories (project_id, agent, created_at desc, memory_id);
-- serves recall: everybody's
create index memory_recent on heliograph.memories (project_id, created_at desc, memory_id);
-- serves prune
create index memory_expiry on heliograph.memories (project_id, expires_at, memory_id) where expires_at is not null;
alter table heliograph.memories alter column project_id set (n_distinct = 1);

alter table heliograph.project_limits
    add column memories_max     integer check (memories_max > 0),
    add column memory_bytes_max integer check (memory_bytes_max between 1 and 262144);  -- the words of one fit into a tsvector

-- what the planner is to believe before it has seen any: see 0002_planner.sql
insert into heliograph.memories (project_id, memory_id, agent, text, metadata, created_at, expires_at)
select 'planner', 'memory_' || n, 'agent_' || n % 5, 'what was learned', '{}', '2000-01-01'::timestamptz + n * interval '1 s',
       case when n <= 10 then '2000-01-02'::timestamptz end
  from generate_series(1, 1000) n;
analyze heliograph.memories;
truncate heliograph.memories;
