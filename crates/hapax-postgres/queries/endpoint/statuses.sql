-- Lists the endpoints after an id ($1), of one tenant ($2) or of all, in one state ($3) or in any, whose id
-- or description contains a text ($4) if there is one, at most $5. Each has its health: the newest
-- attempts since a time ($6), at most $7, and up to $8 deliveries that wait or have failed.
-- No probe is due if nothing waits and all that has failed could not be sent by a probe since the last change.
SELECT listed.id, listed.tenant, listed.url, listed.description, listed.disabled_reason,
       listed.failures, listed.last_error, listed.probe_at, listed.is_slowed, tried.attempts,
       tried.delivered, tried.p95_ms, waits.waiting, waits.waiting_since, ended.failed
FROM (
    SELECT id, tenant, url, description, disabled_reason, failures, last_error,
           CASE WHEN probe_at IS NOT NULL AND NOT EXISTS (
               SELECT 1
               FROM hapax.endpoint_delivery AS waits
               WHERE waits.state = 'waiting' AND waits.endpoint = endpoint.id
           ) AND (
               SELECT min(failed.ended_at)
               FROM hapax.endpoint_delivery AS failed
               WHERE failed.state = 'failed' AND failed.endpoint = endpoint.id
           ) > greatest(disabled_at, changed_at) THEN NULL ELSE probe_at END AS probe_at,
           slow_until IS NOT NULL AND disabled_reason IS NULL AS is_slowed
    FROM hapax.endpoint AS endpoint
    WHERE id > $1::text
      AND deleted_at IS NULL
      AND ($2::text IS NULL OR tenant = $2::text)
      AND ($3::text IS NULL OR $3::text = CASE WHEN disabled_reason IS NOT NULL THEN 'disabled'
                                               WHEN slow_until IS NOT NULL THEN 'slowed'
                                               ELSE 'enabled' END)
      AND ($4::text IS NULL OR strpos(id, $4::text) > 0 OR strpos(description, $4::text) > 0)
    ORDER BY id
    LIMIT $5::int8
) AS listed
CROSS JOIN LATERAL (
    SELECT count(*) AS attempts,
           count(*) FILTER (WHERE looked.outcome = 'delivered') AS delivered,
           percentile_disc(0.95) WITHIN GROUP (ORDER BY looked.duration_ms) AS p95_ms
    FROM (
        SELECT attempt.duration_ms, attempt.outcome
        FROM hapax.endpoint_attempt AS attempt
        WHERE attempt.tenant = listed.tenant
          AND attempt.endpoint = listed.id
          AND attempt.started_at >= $6::timestamptz
          AND attempt.outcome NOT IN ('dropped', 'rejected')
        ORDER BY attempt.started_at DESC, attempt.id DESC
        LIMIT $7::int8
    ) AS looked
) AS tried
CROSS JOIN LATERAL (
    SELECT count(*) AS waiting, min(looked.created_at) AS waiting_since
    FROM (
        SELECT delivery.created_at
        FROM hapax.endpoint_delivery AS delivery
        WHERE delivery.tenant = listed.tenant
          AND delivery.endpoint = listed.id
          AND delivery.state = 'waiting'
        LIMIT $8::int8
    ) AS looked
) AS waits
CROSS JOIN LATERAL (
    SELECT count(*) AS failed
    FROM (
        SELECT delivery.id
        FROM hapax.endpoint_delivery AS delivery
        WHERE delivery.tenant = listed.tenant
          AND delivery.endpoint = listed.id
          AND delivery.state = 'failed'
        LIMIT $8::int8
    ) AS looked
) AS ended
ORDER BY listed.id
