-- Inserts the deliveries that have a row: retried, blocked, scheduled, dead and discarded ones.
INSERT INTO hapax.delivery
    (destination, position, state, attempt, next_at, order_key, last_error, changed_at, reason)
SELECT plant.partition(n), plant.position(n), state,
       CASE state WHEN 'dead' THEN 8 WHEN 'discarded' THEN 8 WHEN 'blocked' THEN 0
                  WHEN 'scheduled' THEN 0 ELSE 2 END,
       plant.at(n) + n % 7200 * interval '1 second', E'order\no-' || plant.request(n),
       CASE WHEN state IN ('blocked', 'scheduled') THEN NULL
            ELSE (ARRAY['connection refused', '503 Service Unavailable', 'timeout after 10 s',
                        '550 no such mailbox', '429 Too Many Requests'])[1 + n / 2000 % 5] END,
       plant.at(n) + interval '2 seconds',
       CASE WHEN state = 'discarded' THEN 'the customer is gone' END
FROM (
    SELECT n, plant.state(n) AS state
    FROM generate_series($1::bigint, $2::bigint - 1) AS series (n)
) AS every
WHERE state IS NOT NULL
