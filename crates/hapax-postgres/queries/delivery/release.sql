-- Lets the lowest unfinished delivery of each key fall due if it is blocked, with no attempt made.
UPDATE hapax.delivery AS delivery SET
    state = 'retrying',
    attempt = 0,
    next_at = $3::timestamptz,
    changed_at = $3::timestamptz
FROM (SELECT DISTINCT order_key FROM unnest($2::text[]) AS released (order_key)) AS released
CROSS JOIN LATERAL (
    SELECT position
    FROM hapax.delivery AS unfinished
    WHERE unfinished.destination = $1::text
      AND unfinished.order_key = released.order_key
      AND unfinished.state IN ('retrying', 'blocked', 'dead')
    ORDER BY position
    LIMIT 1
) AS lowest
WHERE delivery.destination = $1::text
  AND delivery.position = lowest.position
  AND delivery.state = 'blocked'
