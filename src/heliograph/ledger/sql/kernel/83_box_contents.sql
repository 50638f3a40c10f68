-- The contents of a box: its own cards, and before them those of the box that it was forked from.

-- read_box: return up to p_limit cards of a box after a position, in order, first those of its bases. A box that does
--   not exist has no cards. Each page costs the same, however many cards the box has.
--   Returns [{position, card_id, kind, content, turn_id, epoch, created_at}].
--   raises: see _enter; 22023 for a limit that is not between 1 and 1000
create function heliograph.read_box(p_project text, p_box_id text, p_after bigint, p_limit integer) returns jsonb
    language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter(p_project);
    v_level record;
    v_cards jsonb;
    v_answer jsonb := '[]';
begin
    if not coalesce(p_limit between 1 and 1000, false) then
        raise exception using errcode = '22023', message = format('limit must be between 1 and 1000, not %s', p_limit);
    end if;
    for v_level in select c.box_id, c.up_to from heliograph._box_chain(p_project, p_box_id) c order by c.level desc loop
        exit when jsonb_array_length(v_answer) >= p_limit;
        select jsonb_agg(jsonb_build_object(
                   'position', c.position, 'card_id', c.card_id, 'kind', c.kind,
                   'content', heliograph._content(p_project, c.content), 'turn_id', c.agent_turn_id,
                   'epoch', c.turn_epoch, 'created_at', c.created_at) order by c.position)
          into v_cards
          from (select * from heliograph.cards x
                 where x.project_id = p_project and x.box_id = v_level.box_id
                   and x.position > case when p_after is null then 0 else p_after end and x.position <= v_level.up_to
                 order by x.position limit p_limit - jsonb_array_length(v_answer)) c;
        v_answer := v_answer || coalesce(v_cards, '[]');
    end loop;
    return v_answer;
end $$;

-- _box_chain: a box and its bases, each with the position up to which it is seen; level 0 is the box itself.
create function heliograph._box_chain(
    p_project text, p_box_id text
) returns table (box_id text, up_to bigint, level integer)
    language sql stable as $$
    with recursive chain (box_id, up_to, level) as (
        select p_box_id collate "C", 9223372036854775807, 0
        union all
        select b.base_box_id, least(c.up_to, b.base_position), c.level + 1
          from chain c
         cross join lateral (  -- by its key: a join may read all forks
               select x.base_box_id, x.base_position from heliograph.boxes x
                where x.project_id = p_project and x.box_id = c.box_id offset 0) b
         where b.base_box_id is not null)
    select chain.box_id, chain.up_to, chain.level from chain
$$;

-- box_contents: the cards of every box, as read_box returns them, and therefore those of a base once for each fork
create view heliograph.box_contents as
select c.project_id, c.box_id, c.position, c.card_id, c.agent_turn_id as turn_id, c.turn_epoch, c.kind,
       coalesce((select b.content from heliograph.blobs b
                  where b.project_id = c.project_id and b.blob_id = c.content ->> '$blob'), c.content) as content,
                  c.created_at
  from heliograph.cards c
union all
select b.project_id, b.box_id, c.position, c.card_id, c.agent_turn_id, c.turn_epoch, c.kind,
       coalesce((select x.content from heliograph.blobs x
                  where x.project_id = c.project_id and x.blob_id = c.content ->> '$blob'), c.content), c.created_at
  from heliograph.boxes b
 cross join lateral (  -- as in _box_chain, which readers of a view may not execute
       with recursive chain (box_id, up_to, level) as (
           select b.box_id, 9223372036854775807, 0
           union all
           select n.base_box_id, least(c.up_to, n.base_position), c.level + 1
             from chain c
             join heliograph.boxes n on n.project_id = b.project_id and n.box_id = c.box_id
                 and n.base_box_id is not null)
       select chain.box_id, chain.up_to, chain.level from chain) f
  join heliograph.cards c on c.project_id = b.project_id and c.box_id = f.box_id and c.position <= f.up_to
 where f.level > 0;

-- box_overview: boxes that a call has created or forked; a turn's own output box, box_<turn>, has no row
create view heliograph.box_overview as
select b.project_id, b.box_id, b.kind, b.base_box_id, b.base_position, b.writer_turn_id, b.created_at
  from heliograph.boxes b;
