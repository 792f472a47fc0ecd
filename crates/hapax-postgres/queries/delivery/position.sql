-- Reads where a part is, which checkpoint says so, and whether a sequence stands too low for it, or
-- events that were written meanwhile have still to be looked through.
-- Only here: the other store asks piece by piece, which costs it no round trips.
SELECT frontier, snapshot, settled, offered, written_at, checkpoint_epoch, checkpoint_settlement,
       frontier > events.drawn OR checkpoint_number > checkpoints.drawn
           OR hapax.has_misplaced()
FROM hapax.position
CROSS JOIN (
    SELECT last_value - (NOT is_called)::int4 AS drawn FROM hapax.outbox_event_id
) AS events
CROSS JOIN (
    SELECT last_value - (NOT is_called)::int4 AS drawn FROM hapax.checkpoint_number
) AS checkpoints
WHERE part = $1::text
