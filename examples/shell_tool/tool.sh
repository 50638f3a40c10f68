#!/bin/sh
# The tool `checksum`, in plain shell: it takes one call, does the work, and reports the result. It needs only psql.
#   HELIOGRAPH_DATABASE_URL=postgresql://... sh tool.sh [PROJECT]
# It exits with 0 after a report, and with 3 if no call is open. Run it in a loop, or from a timer.
# psql receives values as variables, never in the text of a statement, so a call cannot inject SQL or shell commands.
set -eu
project=${1:-default}
sql() { psql "$HELIOGRAPH_DATABASE_URL" --no-psqlrc --quiet --no-align --tuples-only --set ON_ERROR_STOP=1 "$@"; }

# A taken call is hidden from others for 60 seconds. If this script dies, the call is delivered again.
call=$(sql --set project="$project" <<'SQL'
select heliograph.take_commands(:'project', '["checksum"]', 1, 60, clock_timestamp()) -> 0
SQL
)
[ -n "$call" ] || exit 3

# Print one part of the call. The database extracts it, so no other program has to parse JSON.
part() { sql --set call="$call" --set path="$1" <<'SQL'
select :'call'::jsonb #>> :'path'::text[]
SQL
}
sum=$(part '{body,arguments,text}' | head -c -1 | sha256sum | cut -d ' ' -f 1)

sql --set project="$project" --set turn="$(part '{turn_id}')" --set call_id="$(part '{call_id}')" \
    --set token="$(part '{body,token}')" --set sum="$sum" <<'SQL'
select heliograph.report_result(:'project', :'turn', :'call_id', :'token', 'success', to_jsonb(:'sum'::text))
SQL
