-- The deliverable of a turn is the card card:<turn>:end. The turn has no copy of this id (decision 0183).

alter table heliograph.agent_turns drop column deliverable_card_id;
