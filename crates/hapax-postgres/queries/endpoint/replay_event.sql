-- Makes the delivery of an event ($3) to an endpoint ($2) of a tenant ($1) due, as if it had not been
-- tried. The replay takes another number, so a settlement of an attempt that began before it
-- changes nothing.
WITH replayed AS (
    UPDATE hapax.endpoint_delivery
    SET state = 'waiting',
        attempt = attempt + 1,
        counted_from = attempt + 1,
        next_at = coalesce($4::timestamptz, clock_timestamp()),
        ended_at = NULL
    WHERE tenant = $1::text AND endpoint = $2::text AND event_id = $3::text::uuid
    RETURNING 1
)
SELECT count(*) AS replayed FROM replayed
