-- Counts attempts before they are made, so that an event that crashes its relay uses up its
-- attempts. A blocked delivery becomes a retry: its relay settles the delivery that blocked it in
-- the same settlement. See release for the form of this statement.
UPDATE hapax.delivery AS delivery SET
    attempt = begun.number,
    begun_at = $4::timestamptz,
    state = CASE state WHEN 'blocked' THEN 'retrying' ELSE state END
FROM (
    SELECT $1::text AS destination, position, number
    FROM unnest($2::int8[], $3::int4[]) AS begun (position, number)
    OFFSET 0
) AS begun
WHERE delivery.destination = begun.destination
  AND delivery.position = begun.position
  AND delivery.state NOT IN ('dead', 'delivered', 'discarded')
