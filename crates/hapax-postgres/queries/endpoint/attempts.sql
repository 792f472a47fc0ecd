-- Lists the attempts at an endpoint ($2) of a tenant ($1), the newest first, before a time and an id ($6,
-- $7), each with the state of its delivery. An attempt without a row of the queue is the only one.
SELECT attempt.id, attempt.event_id::text AS event_id, attempt.type, attempt.number,
       attempt.started_at, attempt.duration_ms, attempt.outcome, attempt.status, attempt.error,
       attempt.request, attempt.response, attempt.is_encrypted,
       coalesce(delivery.state,
                CASE WHEN attempt.outcome = 'delivered' THEN 'delivered' ELSE 'failed' END) AS state,
       CASE WHEN delivery.state = 'waiting' THEN delivery.next_at END AS next_at
FROM hapax.endpoint_attempt AS attempt
LEFT JOIN hapax.endpoint_delivery AS delivery
    ON delivery.endpoint = attempt.endpoint
    AND delivery.event_id = attempt.event_id
    AND delivery.tenant = attempt.tenant
WHERE attempt.tenant = $1::text
  AND attempt.endpoint = $2::text
  AND ($3::text IS NULL OR ($3::text = 'delivered') = (attempt.outcome = 'delivered'))
  AND ($4::text IS NULL OR attempt.event_id = $4::text::uuid)
  AND ($5::timestamptz IS NULL OR attempt.started_at >= $5::timestamptz)
  AND (attempt.started_at, attempt.id) < ($6::timestamptz, $7::int8)
ORDER BY attempt.started_at DESC, attempt.id DESC
LIMIT $8::int8
