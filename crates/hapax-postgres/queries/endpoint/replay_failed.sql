-- Makes deliveries of an endpoint ($2) of a tenant ($1) due that have failed at a time ($3) or later and before
-- another ($6), at most $4, as if they had not been tried: those that were dropped, which have the error in
-- $8, those that were not, or both ($7). Each replay takes another number, so a settlement of an
-- attempt that began before it changes nothing.
WITH chosen AS (
    SELECT id
    FROM hapax.endpoint_delivery
    WHERE tenant = $1::text
      AND endpoint = $2::text
      AND state = 'failed'
      AND ended_at >= $3::timestamptz
      AND ($6::timestamptz IS NULL OR ended_at < $6::timestamptz)
      AND ($7::text IS NULL OR $7::text::bool = coalesce(last_error = $8::text, false))
    ORDER BY ended_at, id
    LIMIT $4::int8
    FOR UPDATE
), replayed AS (
    UPDATE hapax.endpoint_delivery AS delivery
    SET state = 'waiting',
        attempt = delivery.attempt + 1,
        counted_from = delivery.attempt + 1,
        next_at = coalesce($5::timestamptz, clock_timestamp()),
        ended_at = NULL
    FROM chosen
    WHERE delivery.id = chosen.id
    RETURNING 1
)
SELECT count(*) AS replayed FROM replayed
