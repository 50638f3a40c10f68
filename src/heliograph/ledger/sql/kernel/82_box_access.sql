-- Box access: which boxes a turn may read and write. A turn reads only boxes to which nobody writes, and a box that a
-- turn may read or write is locked against prune.

-- _lock_box: whether the box exists. It is locked against prune until the end of this transaction.
--   locks:  its row, or that of the turn that may write to it, for key share: only prune conflicts with it, and skips
--           the row
create function heliograph._lock_box(p_project text, p_box_id text) returns boolean
    language plpgsql as $$
declare
    v_writer text := heliograph._writer_of(p_project, p_box_id);
begin
    if v_writer is null then
        perform from heliograph.boxes
          where project_id = p_project and box_id = p_box_id order by box_id for key share;
        return found;
    end if;
    -- one lock, which prune takes too, for all boxes of a turn: two, in another order, could be a deadlock
    perform from heliograph.agent_turns
      where project_id = p_project and agent_turn_id = v_writer order by agent_turn_id for key share;
    return found and (p_box_id = 'box_' || v_writer
                      or exists (select from heliograph.boxes where project_id = p_project and box_id = p_box_id));
end $$;

-- _reject_context: null, or the rejection of a box that no turn can read: it does not exist, or a turn writes to it.
--   locks:  the box against prune
create function heliograph._reject_context(p_project text, p_box_id text) returns jsonb
    language plpgsql as $$
begin
    if not heliograph._lock_box(p_project, p_box_id) then
        return heliograph._rejection('unknown_box', format('there is no box %s', p_box_id));
    elsif exists (select from heliograph.agent_turns
                   where project_id = p_project and agent_turn_id = heliograph._writer_of(p_project, p_box_id)
                     and state <> 'done') then
        return heliograph._rejection('box_in_use', format('box %s is still being written: read a fork of it',
                                                          p_box_id));
    end if;
    return null;
end $$;

-- _check_contexts: reject activations with a context box that no turn can read, if no answer can name it.
--   raises: 22023 naming the box
--   locks:  the boxes against prune
create function heliograph._check_contexts(p_project text, p_activations jsonb) returns void
    language plpgsql as $$
declare
    v_rejection jsonb := (
        select r.rejection from (
               select b.box_id, heliograph._reject_context(p_project, b.box_id) as rejection from (
                      select distinct a ->> 'context_box_id' as box_id from jsonb_array_elements(p_activations) a
                       where a ->> 'context_box_id' is not null order by 1) b) r
         where r.rejection is not null order by r.box_id limit 1);
begin
    if v_rejection is not null then
        raise exception using errcode = '22023', message = v_rejection ->> 'message';
    end if;
end $$;

-- _reject_boxes: null, or the rejection of boxes that a turn cannot have; see replace_boxes.
--   locks:  the boxes against prune; the caller holds the head
create function heliograph._reject_boxes(p_project text, p_item jsonb) returns jsonb
    language plpgsql as $$
declare
    v_output text := p_item ->> 'output_box_id';
    v_context text := p_item ->> 'context_box_id';
begin
    if v_output is not null and not heliograph._lock_box(p_project, v_output) then
        return heliograph._rejection('unknown_box', format('there is no box %s', v_output));
    elsif heliograph._writer_of(p_project, v_output) is distinct from p_item ->> 'turn_id' and v_output is not null then
        return heliograph._rejection('box_not_writable',
                                     format('box %s is not this turn''s: fork it with writer_turn_id', v_output));
    end if;
    return case when v_context is not null then heliograph._reject_context(p_project, v_context) end;
end $$;

-- _writer_of: the turn that may append to a box; null for a context box.
create function heliograph._writer_of(p_project text, p_box_id text) returns text
    language sql stable as $$
    select case when exists (select from heliograph.boxes where project_id = p_project and box_id = p_box_id)
                then (select writer_turn_id from heliograph.boxes where project_id = p_project and box_id = p_box_id)
                when p_box_id like 'box\_%' then substr(p_box_id, 5) end
$$;
