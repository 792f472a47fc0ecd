-- Reads the position of a partition and the id of its checkpoint, and whether a sequence is too low
-- for it or events that were written meanwhile still have to be checked.
-- Only here: the SQLite store asks in several statements, because it has no round trips.
SELECT frontier, snapshot, settled, offered, written_at, checkpoint_epoch, checkpoint_settlement,
       frontier > events.drawn OR checkpoint_number > checkpoints.drawn
           OR hapax.has_misplaced() AS is_low
FROM hapax.position
CROSS JOIN (
    SELECT last_value - (NOT is_called)::int4 AS drawn FROM hapax.outbox_event_id
) AS events
CROSS JOIN (
    SELECT last_value - (NOT is_called)::int4 AS drawn FROM hapax.checkpoint_number
) AS checkpoints
WHERE partition = $1::text
