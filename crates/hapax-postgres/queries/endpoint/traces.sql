-- Lists the endpoints of a tenant ($1) that have a delivery of an event ($2) or have tried it, at most $4
-- of the first $3, each with its last attempt.
SELECT listed.id, listed.disabled_reason IS NOT NULL AS is_disabled,
       coalesce(delivery.state,
                CASE WHEN tried.outcome = 'delivered' THEN 'delivered' ELSE 'failed' END) AS state,
       coalesce(delivery.attempt, tried.number) AS attempts,
       CASE WHEN delivery.state = 'waiting' THEN delivery.next_at END AS next_at,
       tried.started_at, tried.status, coalesce(delivery.last_error, tried.error) AS error
FROM (
    SELECT id, tenant, disabled_reason
    FROM hapax.endpoint
    WHERE tenant = $1::text AND deleted_at IS NULL
    ORDER BY id
    LIMIT $3::int8
) AS listed
LEFT JOIN hapax.endpoint_delivery AS delivery
    ON delivery.endpoint = listed.id
    AND delivery.event_id = $2::text::uuid
    AND delivery.tenant = listed.tenant
LEFT JOIN LATERAL (
    SELECT attempt.number, attempt.started_at, attempt.outcome, attempt.status, attempt.error
    FROM hapax.endpoint_attempt AS attempt
    WHERE attempt.endpoint = listed.id
      AND attempt.event_id = $2::text::uuid
      AND attempt.tenant = listed.tenant
    ORDER BY attempt.number DESC, attempt.started_at DESC
    LIMIT 1
) AS tried ON true
WHERE delivery.state IS NOT NULL OR tried.outcome IS NOT NULL
ORDER BY listed.id
LIMIT $4::int8
