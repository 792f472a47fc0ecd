-- Lets the lowest unfinished delivery of each key fall due if it is blocked, with no attempt made:
-- one that was waited for has ended, or there was none.
--
-- Here as in the others that change deliveries by number, the destination comes out of a subquery
-- and the states are those that are left out: a table of which there are no statistics yet is
-- believed to hold one row of a destination or of a state, and would be gone through as a whole
-- for each that is looked for.
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
