select job_put('{"op": "noop", "n": 1}');
select coalesce(job_claim(:client_id), 0) as id
\gset
select job_done(:id, :client_id, '{"ok": true}');
