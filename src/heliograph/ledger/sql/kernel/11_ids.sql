-- Ids. Callers choose the ids of turns, calls, cards, boxes and runs; the kernel derives other ids from them. A derived
-- id has a colon between its parts, and no chosen id contains a colon. So no caller can take a derived id, and no two
-- derived ids are the same.

-- _wrong_id: null, or the problem of an id that a caller chose; p_what names it.
create function heliograph._wrong_id(p_what text, p_id text) returns text
    language sql immutable as $$
    select case when not coalesce(octet_length(p_id) between 1 and 200 and p_id !~ '[\u0001-\u001f:\u007f-\u009f]',
                                  false)
                then p_what || ' must have 1 to 200 bytes, none of them a colon or a control character' end
$$;

-- _deliverable_id: the id of the card that ends a turn. A turn has one deliverable, because this id is unique (K21).
create function heliograph._deliverable_id(p_turn_id text) returns text
    language sql immutable as $$
    select 'card:' || p_turn_id || ':end'
$$;

-- _result_id: the card with the result of a call.
create function heliograph._result_id(p_turn_id text, p_call_id text) returns text
    language sql immutable as $$
    select 'card:' || p_turn_id || ':call:' || p_call_id
$$;

-- _wrong_card: null, or the problem of a card {card_id, kind, content} that a caller writes.
create function heliograph._wrong_card(p_card jsonb) returns text
    language sql immutable as $$
    select coalesce(
        heliograph._wrong_keys('cards[]', p_card, '{card_id,kind,content}'),
        heliograph._wrong_id('a card id', p_card ->> 'card_id'),
        case when not coalesce(octet_length(p_card ->> 'kind') between 1 and 200, false)
            then 'the kind of a card must have 1 to 200 bytes'
             when p_card -> 'content' is null then 'a card must have content' end)
$$;

-- _wrong_name: null, or the problem of a signal's name (SIG-11), as heliograph.signals.names checks it.
create function heliograph._wrong_name(p_name text) returns text
    language sql immutable as $$
    select case when not coalesce(octet_length(p_name) <= 200 and p_name ~ '^[A-Za-z0-9_.-]+(:[A-Za-z0-9_.-]+){0,15}$',
                                  false)
                then 'name: segments joined by a colon, each of letters A-Z a-z, digits, _, - or ., '
                      'at most 200 characters and 16 segments' end
$$;

-- _is_reserved: whether only the runtime emits signals of this name (heliograph.signals.names).
create function heliograph._is_reserved(p_name text) returns boolean
    language sql immutable as $$
    select split_part(p_name, ':', 1) = any ('{workflow,kernel,agent,harness,state,text,thinking,tool}')
        or p_name
             in ('ready', 'plan_ready', 'action_complete', 'reflection_complete', 'terminated', 'error', 'halt',
                 'heartbeat', 'delegation', 'delegation_response', 'tool_call', 'tool_call_response')
$$;

-- _is_field: whether this is one of result_fields. Null counts as no.
create function heliograph._is_field(p_field jsonb) returns boolean
    language sql immutable as $$
    select case when jsonb_typeof(p_field) = 'object' then
        jsonb_typeof(p_field -> 'name') = 'string' and length(p_field ->> 'name') between 1 and 200
        and coalesce(p_field ->> 'type', 'string') = any ('{string,number,integer,boolean,object,array}')
        and coalesce(jsonb_typeof(p_field -> 'required'), 'boolean') = 'boolean'
        and p_field - '{name,type,required,description}'::text[] = '{}' end
$$;

-- _wrong_fields: null, or the problem of result_fields [{name, type, required, description}], as
--   definitions/fields.py checks them for clients: at most 100, no name twice.
create function heliograph._wrong_fields(p_fields jsonb) returns text
    language sql immutable as $$
    select case
        when jsonb_typeof(p_fields) = 'null' then null
        when jsonb_typeof(p_fields) <> 'array'
        then 'result_fields must be a list of {name, type, required, description}'
        when jsonb_array_length(p_fields) > 100
        then 'result_fields has ' || jsonb_array_length(p_fields) || ' fields; at most 100 are allowed: remove some'
        when exists (select from jsonb_array_elements(p_fields) f where heliograph._is_field(f) is not true)
        then 'each of result_fields must be {name, type, required, description}: a name of 1 to 200 characters; '
             'a type that is string, number, integer, boolean, object, array or missing; '
             'and required that is true, false or missing'
        when (select count(distinct f ->> 'name') from jsonb_array_elements(p_fields) f) < jsonb_array_length(p_fields)
        then 'result_fields must have different names: rename or remove one' end
$$;

-- _invalid: reject the whole call, from within a query.
--   raises: 22023
create function heliograph._invalid(p_message text) returns jsonb
    language plpgsql as $$
begin
    raise exception using errcode = '22023', message = p_message;
end $$;

-- _callback_id: the id that all attempts of one callback share; p_what: turn:<id> or run:<id>.
create function heliograph._callback_id(p_project text, p_what text) returns text
    language sql immutable as $$
    select 'callback_' || encode(substr(sha256(convert_to(p_project || '/' || p_what, 'UTF8')), 1, 16), 'hex')
$$;

-- _wrong_url: null, or the problem of a callback_url. The workers decide whether they send to it.
create function heliograph._wrong_url(p_url jsonb) returns text
    language sql immutable as $$
    select case when coalesce(jsonb_typeof(p_url), 'null') <> 'null'
                 and (jsonb_typeof(p_url) <> 'string' or octet_length(p_url #>> '{}') > 2000
                      or p_url #>> '{}' !~ '^https?://[\x21-\x7e]+$')
                then 'callback_url must begin with https:// (or http://) and have at most 2000 printable ASCII '
                     'characters: percent-encode all others' end
$$;
