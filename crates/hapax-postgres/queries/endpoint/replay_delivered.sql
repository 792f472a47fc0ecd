-- Puts an event ($3) into the queue that an endpoint ($2) of a tenant ($1) has received at its first
-- attempt, if the outbox still has the event. The replay takes another number: an attempt of an
-- event that was offered twice may still be in flight, and its settlement changes nothing.
WITH replayed AS (
    INSERT INTO hapax.endpoint_delivery
        (endpoint, tenant, position, event_id, type, aggregate_type, aggregate_id, sequence, payload,
         headers, event_created_at, state, attempt, counted_from, next_at, created_at)
    SELECT tried.endpoint, tried.tenant, event.id, event.event_id, event.type, event.aggregate_type,
           event.aggregate_id, event.sequence, event.payload, event.headers, event.created_at,
           'waiting', tried.number + 1, tried.number + 1, now.at, now.at
    FROM (SELECT coalesce($4::timestamptz, clock_timestamp()) AS at) AS now
    CROSS JOIN (
        SELECT endpoint, tenant, position, event_id, max(number) AS number
        FROM hapax.endpoint_attempt
        WHERE tenant = $1::text AND endpoint = $2::text AND event_id = $3::text::uuid
        GROUP BY endpoint, tenant, position, event_id
    ) AS tried
    JOIN hapax.outbox_event AS event
        ON event.id = tried.position
        AND event.segment IN ((tried.position >> 36 & 7)::int2, -1::int2)
        AND event.event_id = tried.event_id
        AND event.tenant = tried.tenant
    ON CONFLICT (endpoint, event_id) DO NOTHING
    RETURNING 1
)
SELECT count(*) AS replayed FROM replayed
