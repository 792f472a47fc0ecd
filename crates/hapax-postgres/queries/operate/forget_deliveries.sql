-- Deletes a batch of the deliveries of a destination that is removed.
-- Only here: the other store has one process, and nobody beside it who operates.
DELETE FROM hapax.delivery
WHERE ctid = ANY (ARRAY(
    SELECT delivery.ctid
    FROM unnest($1::text[]) AS part (name)
    CROSS JOIN LATERAL (
        SELECT ctid FROM hapax.delivery WHERE destination = part.name LIMIT $2::int8
    ) AS delivery
    LIMIT $2::int8
))
RETURNING 1
