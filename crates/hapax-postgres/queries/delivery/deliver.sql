-- Ends parked deliveries that arrived.
UPDATE hapax.delivery AS delivery SET
    state = 'delivered',
    begun_at = NULL,
    changed_at = $3::timestamptz
FROM unnest($2::int8[]) AS arrived (position)
WHERE delivery.destination = $1::text
  AND delivery.position = arrived.position
