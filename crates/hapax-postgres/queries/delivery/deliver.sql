-- Marks parked deliveries as delivered. See release for the form of this statement.
UPDATE hapax.delivery AS delivery SET
    state = 'delivered',
    begun_at = NULL,
    changed_at = $3::timestamptz
FROM (
    SELECT $1::text AS destination, position
    FROM unnest($2::int8[]) AS arrived (position)
    OFFSET 0
) AS arrived
WHERE delivery.destination = arrived.destination
  AND delivery.position = arrived.position
