-- Deletes a batch of the deliveries of a removed destination.
DELETE FROM hapax.delivery
WHERE ctid = ANY (ARRAY(
    SELECT delivery.ctid
    FROM unnest($1::text[]) AS partition (name)
    CROSS JOIN LATERAL (
        SELECT ctid FROM hapax.delivery WHERE destination = partition.name LIMIT $2::int8
    ) AS delivery
    LIMIT $2::int8
))
RETURNING 1
