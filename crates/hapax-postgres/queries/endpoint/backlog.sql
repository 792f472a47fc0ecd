-- Counts the deliveries that wait, up to $1, and how long those have been due whose endpoint is
-- enabled and did not fail last; and the endpoints.
SELECT (SELECT count(*) FROM hapax.endpoint WHERE deleted_at IS NULL) AS endpoints,
       (SELECT count(*) FROM hapax.endpoint WHERE deleted_at IS NULL AND disabled_reason IS NOT NULL)
           AS disabled,
       (SELECT count(*) FROM hapax.endpoint
        WHERE deleted_at IS NULL AND disabled_reason IS NULL AND slow_until IS NOT NULL) AS slowed,
       count(*) AS waiting,
       coalesce((extract(epoch FROM coalesce($2::timestamptz, clock_timestamp())
           - min(waits.next_at) FILTER (WHERE endpoint.disabled_reason IS NULL
                                          AND endpoint.failures = 0)) / 0.001)::int8, 0) AS overdue_ms
FROM (
    SELECT endpoint, next_at
    FROM hapax.endpoint_delivery
    WHERE state = 'waiting'
    LIMIT $1::int8
) AS waits
JOIN hapax.endpoint AS endpoint ON endpoint.id = waits.endpoint
