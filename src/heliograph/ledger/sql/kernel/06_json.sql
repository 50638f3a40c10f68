-- JSON from outside. PostgreSQL stores more than its clients can read: numbers of 131,072 digits, and thousands of
-- containers inside each other. One such stored value stops every reader of its row. So every public function checks
-- its JSON arguments.

-- _check_json: reject JSON that some client cannot decode. The codes are those of heliograph.signals.payload.
--   Linear, and cheap where nothing is wrong: only JSON with many digits in a row has its numbers compared. Returns the
--   length of the text in bytes: no part of the JSON is longer, see _exceeds.
--   raises: 22023 json_too_large: over 128 MiB, as text or as PostgreSQL stores it; json_too_deep: over 100 containers
--           inside each other; number_too_large: a number outside the range of a double, or of over 4300 digits
create function heliograph._check_json(p_json jsonb) returns integer
    language plpgsql immutable as $$
declare
    v_bytes_max constant integer := 134217728;
    v_text text;
begin
    if pg_column_size(p_json) > v_bytes_max then
        perform heliograph._invalid(
            format('json_too_large: over %s bytes of JSON; send less in one call', v_bytes_max));
    end if;
    -- one level at a time: a recursion through all levels would exhaust the stack
    if jsonb_path_exists(p_json, 'strict $.**{101}') then
        perform heliograph._invalid('json_too_deep: over 100 containers inside each other; make the value flatter');
    end if;
    v_text := p_json::text;
    if octet_length(v_text) > v_bytes_max then
        perform heliograph._invalid(
            format('json_too_large: over %s bytes of JSON; send less in one call', v_bytes_max));
    end if;
    -- jsonb writes its numbers without exponents: a number outside the range of a double has over 255 digits in a row
    if heliograph._has_block_of_digits(convert_to(v_text, 'UTF8')) then
        perform heliograph._invalid('number_too_large: a number outside the range of a double, or of over 4300 digits; '
                                    'send it as a string')
           from jsonb_path_query(p_json, 'strict $.** ? (@.type() == "number")') n (value)
          where octet_length(n.value::text) > 4302  -- the sign and the point do not count as digits
             or abs(n.value::numeric) > 1.797693134862315708145274237317043567981e308;
    end if;
    return octet_length(v_text);
end $$;

-- _check_columns: check the values of the JSON columns of a list of requests, as _check_json checks one value. Here a
--   value is in two containers less than in a list of objects, and may be no deeper for that. 99 containers inside each
--   other have at least 792 bytes, so that most values need no look inside them. Returns the bytes of all, as text.
--   raises: see _check_json
create function heliograph._check_columns(p_values jsonb[]) returns integer
    language plpgsql immutable as $$
declare
    v_value jsonb;
    v_text text;
begin
    foreach v_value in array p_values loop
        if pg_column_size(v_value) > 700 and jsonb_path_exists(v_value, 'strict $.**{99}') then
            perform heliograph._invalid('json_too_deep: over 100 containers inside each other; make the value flatter');
        end if;
    end loop;
    v_text := array_to_string(p_values, ' ');
    if octet_length(v_text) > 134217728 or heliograph._has_block_of_digits(convert_to(v_text, 'UTF8')) then
        return heliograph._check_json(to_jsonb(p_values));
    end if;
    return octet_length(v_text);
end $$;

-- _has_block_of_digits: whether one of the blocks of 128 bytes of a text consists of digits. 255 digits in a row always
--   fill a block. A regular expression would read each character; this reads three bytes of most blocks.
create function heliograph._has_block_of_digits(p_text bytea) returns boolean
    language plpgsql immutable as $$
begin
    for i in 0 .. coalesce(octet_length(p_text), 0) - 128 by 128 loop
        if get_byte(p_text, i) between 48 and 57 and get_byte(p_text, i + 63) between 48 and 57
           and get_byte(p_text, i + 127) between 48 and 57
           and encode(substr(p_text, i + 1, 128), 'escape') ~ '^[0-9]{128}$' then
            return true;
        end if;
    end loop;
    return false;
end $$;

-- A stored value may be older than the check above, or written by hand. A cast that raises would end the whole query: a
-- sweep, a log or the doctor of a project. These casts return null instead.

-- _as_whole: a stored number as a bigint; null for any other value.
create function heliograph._as_whole(p_value jsonb) returns bigint
    language sql immutable as $$
    select case jsonb_typeof(p_value) when 'number' then case when p_value::numeric between -9e18 and 9e18
        then p_value::bigint end end
$$;

-- _as_boolean: a stored value as a boolean, as the cast of its text would be; null for any other value.
create function heliograph._as_boolean(p_value jsonb) returns boolean
    language sql immutable as $$
    select case when lower(btrim(left(p_value #>> '{}', 20))) in ('true', 'tru', 'tr', 't', 'yes', 'ye', 'y', 'on', '1')
        then true
                when lower(btrim(left(p_value #>> '{}', 20))) in ('false', 'fals', 'fal', 'fa', 'f', 'no', 'n', 'off',
                                                                  'of', '0') then false end
$$;

-- _as_object: a stored object as it is; null for null, and an empty object for any other value.
create function heliograph._as_object(p_value jsonb) returns jsonb
    language sql immutable as $$
    select case when p_value is null or jsonb_typeof(p_value) = 'object' then p_value else '{}' end
$$;
