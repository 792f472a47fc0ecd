-- Makes the first unfinished delivery of each order key due if it is blocked, with no attempts
-- counted: the delivery that blocked it has ended, or there was none.
-- As in the other statements that change deliveries by number, the destination comes from a
-- subquery, and the states are excluded rather than listed. If a table has no statistics yet, the
-- planner assumes that it has one row of a destination or of a state, and would scan the whole
-- table for each row that is looked up.
UPDATE hapax.delivery AS delivery SET
    state = 'retrying',
    attempt = 0,
    next_at = $3::timestamptz,
    changed_at = $3::timestamptz
FROM (
    SELECT $1::text AS destination, (
        SELECT position
        FROM hapax.delivery AS unfinished
        WHERE unfinished.destination = $1::text
          AND unfinished.order_key = released.order_key
          AND unfinished.state IN ('retrying', 'blocked', 'dead')
        ORDER BY position
        LIMIT 1
    ) AS position
    FROM (SELECT DISTINCT order_key FROM unnest($2::text[]) AS released (order_key)) AS released
    OFFSET 0
) AS lowest
WHERE delivery.destination = lowest.destination
  AND delivery.position = lowest.position
  AND delivery.state NOT IN ('scheduled', 'retrying', 'dead', 'delivered', 'discarded')
