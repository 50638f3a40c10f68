\set agent :client_id * 1000 + random(0, 999)
select turn_submit(:agent, '{"op": "ask"}');
select turn_id as turn, turn_epoch as epoch from turn_claim(:agent)
\gset
select turn_suspend(:agent, :turn, :epoch, :turn);
select turn_result(:agent, :turn, '{"r": 1}');
select turn_finish(:agent, :turn, :turn, '{"done": true}');
