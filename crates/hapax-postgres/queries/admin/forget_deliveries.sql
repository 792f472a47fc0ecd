-- Deletes a batch of the deliveries of a removed destination.
-- Only here: the SQLite store belongs to one process, and has no admin API.
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
