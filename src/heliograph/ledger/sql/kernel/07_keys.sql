-- Keys of requests. An unknown key is misspelt, or belongs to another version. A function that ignored it would not do
-- what its caller means, so every public function rejects it before it locks or writes anything (decision 0035). The
-- keys of payloads, states, memories, arguments, results and metadata are free.
--
-- PostgreSQL sets up all expressions of a statement before it evaluates any. The messages of an inlined check are
-- therefore built by plpgsql functions, which PostgreSQL sets up when it calls them (decision 0054).

-- _unknown_key: the message about the first of these unknown keys, cut, and quoted as JSON.
create function heliograph._unknown_key(p_path text, p_unknown jsonb, p_keys text[]) returns text
    language sql immutable as $$
    select p_path || ' has the unknown key ' || to_jsonb(left(min(k collate "C"), 60))::text || '; its keys are '
           || array_to_string(p_keys, ', ')
      from jsonb_object_keys(p_unknown) k
$$;

-- _wrong_keys: return a message about the first key of an object that is not one of p_keys; null if there is none.
--   p_path names the object in the call. Other checks reject values that are no objects. Inlined, because it runs on
--   each item of a batch.
create function heliograph._wrong_keys(p_path text, p_object jsonb, p_keys text[]) returns text
    language sql immutable as $$
    select case when jsonb_typeof(p_object) = 'object' and p_object - p_keys <> '{}'
                then heliograph._unknown_key(p_path, p_object - p_keys, p_keys) end
$$;

-- _other_type: the message that a key of an object has another JSON type than p_type.
create function heliograph._other_type(p_path text, p_object jsonb, p_key text, p_type text) returns text
    language plpgsql immutable as $$
begin
    return p_path || '.' || p_key || ' has the type ' || p_type || ', not ' || jsonb_typeof(p_object -> p_key);
end $$;

-- _wrong_type: null, or that a key of an object has another JSON type than p_type. Null is a missing key. Inlined.
create function heliograph._wrong_type(p_path text, p_object jsonb, p_key text, p_type text) returns text
    language sql immutable as $$
    select case when jsonb_typeof(p_object -> p_key) not in (p_type, 'null')
                then heliograph._other_type(p_path, p_object, p_key, p_type) end
$$;

-- _check_type: reject a list in which an object has a key of another JSON type than p_type. Null is a missing key.
--   raises: 22023 naming the object, the key and the type
create function heliograph._check_type(p_path text, p_objects jsonb, p_key text, p_type text) returns void
    language plpgsql immutable as $$
declare
    v_wrong constant text := (select min(heliograph._wrong_type(p_path, o, p_key, p_type))
                                from jsonb_array_elements(p_objects) o);
begin
    if v_wrong is not null then
        raise exception using errcode = '22023', message = v_wrong;
    end if;
end $$;

-- _check_keys: reject a list in which an object has a key that is not one of p_keys.
--   raises: 22023 naming the object, the key and the keys that it may have
create function heliograph._check_keys(p_path text, p_objects jsonb, p_keys text[]) returns void
    language plpgsql immutable as $$
begin
    if jsonb_typeof(p_objects) = 'array' then
        for n in 0 .. jsonb_array_length(p_objects) - 1 loop
            if heliograph._wrong_keys(p_path, p_objects -> n, p_keys) is not null then
                raise exception using errcode = '22023',
                message = heliograph._wrong_keys(p_path, p_objects -> n, p_keys);
            end if;
        end loop;
    end if;
end $$;

-- _shape: the bounds of an array as text; empty for an empty array, null for null. Inlined.
create function heliograph._shape(p_array anyarray) returns text
    language sql immutable as $$
    select case when p_array is not null then coalesce(array_dims(p_array), '') end
$$;

-- _check_shapes: reject the columns of one list of requests, unless all have one dimension that begins at 1, and the
--   same number of values: the functions read their items by index. p_shapes: see _shape.
--   raises: 22023
create function heliograph._check_shapes(p_shapes text[]) returns void
    language plpgsql immutable as $$
begin
    if p_shapes is distinct from array_fill(coalesce(p_shapes[1], '-'), array[cardinality(p_shapes)])
       or p_shapes[1] !~ '^(\[1:\d+\])?$' then
        raise exception using errcode = '22023',
        message = 'the arrays of the items must begin at 1, have one dimension and have one length, not '
                  || array_to_string(array_replace(p_shapes, '', 'empty'), ', ', 'null');
    end if;
end $$;

-- _check_phases: reject a column with an unknown phase.
--   raises: 22023
create function heliograph._check_phases(p_phases text[]) returns void
    language plpgsql immutable as $$
begin
    if not array_replace(p_phases, null, 'init') <@ '{init,plan,act,reflect,terminate}' then
        raise exception using errcode = '22023', message = 'phase must be init, plan, act, reflect or terminate';
    end if;
end $$;

-- _check_strings: reject a list in which an object stands for a string.
--   raises: 22023
create function heliograph._check_strings(p_path text, p_list jsonb) returns void
    language plpgsql immutable as $$
begin
    if jsonb_path_exists(p_list, '$[*] ? (@.type() == "object")') then
        raise exception using errcode = '22023', message = p_path || ' is a string, not an object';
    end if;
end $$;

-- _wrong_cause: null, or the problem of a cause {seq}: an unknown key, or no position in the log. A cause that is an
--   index is not an object, and is checked where it is used.
create function heliograph._wrong_cause(p_path text, p_cause jsonb) returns text
    language sql immutable as $$
    select case when jsonb_typeof(p_cause) = 'object' then coalesce(
        heliograph._wrong_keys(p_path || '.cause', p_cause, '{seq}'),
        case when not coalesce(p_cause ->> 'seq' ~ '^[1-9][0-9]{0,17}$', false)
             then p_path || '.cause must be the index of a signal of this request, or {"seq": n} with the position of '
                            'an earlier signal in the log of the run' end) end
$$;

-- _activation_problem: null, or the problem of an activation that _wrong_activation does not accept at once.
create function heliograph._activation_problem(p_path text, p_activation jsonb) returns text
    language plpgsql immutable as $$
begin
    return coalesce(
        heliograph._wrong_keys(p_path || '.reaction.activations[]', p_activation,
                               '{agent,turn_id,cause,activation,priority,pool,max_attempts,ttl_seconds,'
                               'context_box_id,result_fields,message_type,actor,budget,callback_url,depth}'),
        heliograph._wrong_cause(p_path || '.reaction.activations[]',  -- a missing cause is as invalid as an empty one
            case when jsonb_typeof(p_activation) = 'object' and p_activation ->> 'cause' is null then '{}'
                 else p_activation -> 'cause' end));
end $$;

-- _wrong_activation: null, or the problem of a reaction's activation: an unknown key, or no valid cause. Activations of
--   the kernel itself have more keys and are not checked. What reactions usually contain costs no call of a function.
create function heliograph._wrong_activation(p_path text, p_activation jsonb) returns text
    language sql immutable as $$
    select case case when jsonb_typeof(p_activation -> 'cause') = 'number'
                     then p_activation - '{agent,turn_id,cause,activation,priority,max_attempts,ttl_seconds}'::text[]
                          = '{}' end
           when true then null
           else heliograph._activation_problem(p_path, p_activation) end
$$;

-- _wrong_stops: null, or the problem of the stops {turns, reason} of a reaction.
create function heliograph._wrong_stops(p_path text, p_stops jsonb) returns text
    language sql immutable as $$
    select coalesce(
        heliograph._wrong_keys(p_path, p_stops, '{turns,reason}'),
        heliograph._wrong_type(p_path, p_stops, 'reason', 'string'),
        case when not coalesce(p_stops ->> 'turns' in ('all', 'human_waits'), false)
             then p_path || '.turns is all or human_waits' end)
$$;

-- _status_problem: the problem of a status or an outcome that _wrong_status rejects.
create function heliograph._status_problem(p_path text, p_reaction jsonb) returns text
    language plpgsql immutable as $$
begin
    return coalesce(
        heliograph._wrong_type(p_path, p_reaction, 'status', 'string'),
        heliograph._wrong_type(p_path, p_reaction, 'outcome', 'string'),
        case when not coalesce(p_reaction ->> 'status' in ('running', 'terminating', 'ended'), true)
             then p_path || '.status is running, terminating or ended'
             when not coalesce(p_reaction ->> 'outcome' in ('success', 'failed', 'canceled', 'timeout', 'partial'),
                               true)
             then p_path || '.outcome is success, failed, canceled, timeout or partial'
             else p_path || '.outcome belongs to the status ended, and to no other' end);
end $$;

-- _wrong_status: null, or the problem of the status or the outcome of a reaction. The texts are compared first: text
--   that is one of the values was a string.
create function heliograph._wrong_status(p_path text, p_reaction jsonb) returns text
    language sql immutable as $$
    select case
        when coalesce(p_reaction ->> 'status' in ('running', 'terminating', 'ended'), true)
         and coalesce(p_reaction ->> 'outcome' in ('success', 'failed', 'canceled', 'timeout', 'partial'), true)
         and coalesce(p_reaction ->> 'status' = 'ended', false) = (p_reaction ->> 'outcome' is not null) then null
        else heliograph._status_problem(p_path, p_reaction) end
$$;

-- _wrong_reaction: null, or which key of a reaction {activations, state, memory, status, outcome, stops, keeps_taint}
--   is unknown or has another type. Its activations are not looked at.
create function heliograph._wrong_reaction(p_path text, p_reaction jsonb) returns text
    language sql immutable as $$
    select coalesce(
        heliograph._wrong_keys(p_path, p_reaction,
                               '{activations,state,memory,status,outcome,stops,keeps_taint}'),
        heliograph._wrong_type(p_path, p_reaction, 'memory', 'object'),
        heliograph._wrong_type(p_path, p_reaction, 'keeps_taint', 'boolean'),
        heliograph._wrong_type(p_path, p_reaction, 'stops', 'object'),
        heliograph._wrong_status(p_path, p_reaction),
        case when jsonb_typeof(p_reaction -> 'stops') = 'object'
             then heliograph._wrong_stops(p_path || '.stops', p_reaction -> 'stops') end)
$$;

-- _is_usual_reaction: whether a reaction has only what most have, in the right form, apart from its activations. Null
--   counts as no. Inlined.
create function heliograph._is_usual_reaction(p_reaction jsonb) returns boolean
    language sql immutable as $$
    select case jsonb_typeof(p_reaction) when 'object' then
        p_reaction - '{activations,state,memory,status,outcome}'::text[] = '{}'
        and (jsonb_typeof(p_reaction -> 'memory') = 'object') is not false
        and heliograph._wrong_status('', p_reaction) is null end
$$;

-- _wrong_commit: null, or the problem of an item with a reaction and a recording: an unknown key in one of them or in
--   an activation, or a value of another type. Activations of null are of another type, too.
create function heliograph._wrong_commit(p_reaction jsonb, p_recording jsonb) returns text
    language plpgsql immutable as $$
declare
    v_activations constant jsonb := p_reaction -> 'activations';
    v_wrong text;
begin
    if p_recording is not null then
        v_wrong := heliograph._wrong_recording('p_items[]', jsonb_build_object('recording', p_recording));
    end if;
    if heliograph._is_usual_reaction(p_reaction) is not true then
        v_wrong := coalesce(
            heliograph._wrong_type('p_items[]', jsonb_build_object('reaction', p_reaction), 'reaction', 'object'),
            v_wrong, heliograph._wrong_reaction('p_items[].reaction', p_reaction));
    end if;
    if jsonb_typeof(v_activations) <> 'array' then
        return coalesce(v_wrong, heliograph._other_type('p_items[].reaction', p_reaction, 'activations', 'array'));
    end if;
    for m in 0 .. coalesce(jsonb_array_length(v_activations), 0) - 1 loop
        v_wrong := coalesce(v_wrong, heliograph._wrong_activation('p_items[]', v_activations -> m));
    end loop;
    return v_wrong;
end $$;

-- _check_reactions: reject a column of reactions in which one has a problem, see _wrong_reaction and _wrong_activation.
--   raises: 22023 naming the object, the key and the keys that it may have
create function heliograph._check_reactions(p_reactions jsonb[]) returns void
    language plpgsql immutable as $$
declare
    v_reaction jsonb;
    v_activations jsonb;
    v_wrong text;
begin
    foreach v_reaction in array p_reactions loop
        if heliograph._is_usual_reaction(v_reaction) is not true then
            v_wrong := coalesce(
                heliograph._wrong_type('p_items[]', jsonb_build_object('reaction', v_reaction), 'reaction', 'object'),
                heliograph._wrong_reaction('p_items[].reaction', v_reaction));
        end if;
        v_activations := v_reaction -> 'activations';
        for m in 0 .. coalesce(jsonb_array_length(v_activations), 0) - 1 loop
            v_wrong := coalesce(v_wrong, heliograph._wrong_activation('p_items[]', v_activations -> m));
        end loop;
        if v_wrong is not null then
            raise exception using errcode = '22023', message = v_wrong;
        end if;
    end loop;
end $$;
