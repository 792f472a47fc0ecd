-- Appends attempts to the log, each with the tenant of its endpoint. One that is recorded again exists
-- already.
INSERT INTO hapax.endpoint_attempt
    (endpoint, tenant, position, event_id, type, number, started_at, duration_ms, outcome, status,
     error, request, response, is_encrypted)
SELECT endpoint.id, endpoint.tenant, tried.position, tried.event_id::uuid, tried.type, tried.number,
       tried.started_at, tried.duration_ms, tried.outcome, tried.status, tried.error, tried.request,
       tried.response, $13::bool
FROM unnest($1::text[], $2::int8[], $3::text[], $4::text[], $5::int4[], $6::timestamptz[],
            $7::int8[], $8::text[], $9::int2[], $10::text[], $11::bytea[], $12::bytea[])
    AS tried (endpoint, position, event_id, type, number, started_at, duration_ms, outcome, status,
              error, request, response)
JOIN hapax.endpoint AS endpoint ON endpoint.id = tried.endpoint AND endpoint.deleted_at IS NULL
ON CONFLICT (endpoint, event_id, number, started_at) DO NOTHING
