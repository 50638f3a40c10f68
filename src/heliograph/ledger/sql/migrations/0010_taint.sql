-- Taint: where a value came from, recorded beside the value. See docs/decisions/0024-taint.md.

-- taint: the untrusted sources that the turn had read when it opened the call; null: none. The next owner starts from it.
-- is_trusted: the author of the call vouches for its result. The card of the result is trusted only if that is true and taint is null.
alter table heliograph.turn_waiting_tools
    add column taint text[] collate "C",
    add column is_trusted boolean not null default false;

-- memories of earlier versions have no known origin, so they count as untrusted
alter table heliograph.memories add column is_untrusted boolean not null default true;
alter table heliograph.memories alter column is_untrusted set default false;
