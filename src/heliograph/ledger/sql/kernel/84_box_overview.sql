-- Boxes that were created or forked by a call. A turn's own output box, box_<turn>, has no row.

create view heliograph.box_overview as
select b.project_id, b.box_id, b.kind, b.base_box_id, b.base_position, b.writer_turn_id, b.created_at
  from heliograph.boxes b;
