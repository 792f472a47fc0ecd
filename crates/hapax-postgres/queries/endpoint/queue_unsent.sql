-- Puts events (positions $3 and ids $4) into the queue of an endpoint ($2) of a tenant ($1) that it never got.
-- One that was sent or queued meanwhile is left out, and so is one that the outbox does not have any more.
WITH queued AS (
    INSERT INTO hapax.endpoint_delivery
        (endpoint, tenant, position, event_id, type, aggregate_type, aggregate_id, sequence, payload,
         headers, event_created_at, state, attempt, next_at, created_at)
    SELECT endpoint.id, endpoint.tenant, event.id, event.event_id, event.type, event.aggregate_type,
           event.aggregate_id, event.sequence, event.payload, event.headers, event.created_at,
           'waiting', 0, greatest(now.at, event.available_at), now.at
    FROM (SELECT coalesce($5::timestamptz, clock_timestamp()) AS at) AS now
    CROSS JOIN unnest($3::int8[], $4::text[]) AS unsent (position, event_id)
    JOIN hapax.endpoint AS endpoint
        ON endpoint.id = $2::text AND endpoint.tenant = $1::text AND endpoint.deleted_at IS NULL
    JOIN hapax.outbox_event AS event
        ON event.id = unsent.position
        AND event.segment IN ((unsent.position >> 36 & 7)::int2, -1::int2)
        AND event.event_id = unsent.event_id::uuid
        AND event.tenant = endpoint.tenant
    WHERE NOT EXISTS (
        SELECT 1
        FROM hapax.endpoint_attempt AS attempt
        WHERE attempt.endpoint = endpoint.id AND attempt.event_id = event.event_id
    )
    ORDER BY event.id
    ON CONFLICT (endpoint, event_id) DO NOTHING
    RETURNING 1
)
SELECT count(*) AS queued FROM queued
