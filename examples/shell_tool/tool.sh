#!/bin/sh
# The tool `checksum`, in plain shell: it takes one call, does the work, and reports the result. All it needs is psql.
#   HELIOGRAPH_DATABASE_URL=postgresql://... sh tool.sh [PROJECT]
# It ends with 0 when a call was answered, and with 3 when none was open. Run it in a loop, or from a timer.
# Values go to psql as variables, never into the text of a statement, so what is in a call cannot become SQL or shell.
set -eu
project=${1:-default}
sql() { psql "$HELIOGRAPH_DATABASE_URL" --no-psqlrc --quiet --no-align --tuples-only --set ON_ERROR_STOP=1 "$@"; }

# A call that is taken is hidden from others for 60 seconds: if this script dies, it comes again.
call=$(sql --set project="$project" <<'SQL'
select heliograph.take_commands(:'project', '["checksum"]', 1, 60, clock_timestamp()) -> 0
SQL
)
[ -n "$call" ] || exit 3

# What the call says, one part each, picked out by the database too: no other program has to read JSON.
part() { sql --set call="$call" --set path="$1" <<'SQL'
select :'call'::jsonb #>> :'path'::text[]
SQL
}
sum=$(part '{body,arguments,text}' | head -c -1 | sha256sum | cut -d ' ' -f 1)

sql --set project="$project" --set turn="$(part '{turn_id}')" --set call_id="$(part '{call_id}')" \
    --set token="$(part '{body,token}')" --set sum="$sum" <<'SQL'
select heliograph.report_result(:'project', :'turn', :'call_id', :'token', 'success', to_jsonb(:'sum'::text))
SQL
