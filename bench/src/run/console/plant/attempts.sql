-- Inserts the attempts: eight for each dead or discarded delivery, two for each retried one.
INSERT INTO hapax.attempt
    (destination, position, number, started_at, duration_ms, outcome, status, error, response_head)
SELECT plant.partition(n), plant.position(n), number, plant.at(n) + number * interval '200 milliseconds',
       20 + n % 400, CASE WHEN arrived THEN 'delivered' ELSE 'unavailable' END,
       CASE WHEN arrived THEN 204 ELSE 503 END,
       CASE WHEN NOT arrived THEN '503 Service Unavailable' END,
       convert_to('{"error":"come again later","retry":true}', 'UTF8')
FROM (
    SELECT n, plant.state(n) AS state
    FROM generate_series($1::bigint, $2::bigint - 1) AS series (n)
    WHERE plant.state(n) IN ('dead', 'discarded', 'retrying', 'delivered')
    OFFSET 0
) AS every
CROSS JOIN LATERAL generate_series(1, CASE WHEN state IN ('dead', 'discarded') THEN 8 ELSE 2 END)
    AS tries (number)
CROSS JOIN LATERAL (SELECT state = 'delivered' AND number = 2 AS arrived) AS outcome
ORDER BY n, number
