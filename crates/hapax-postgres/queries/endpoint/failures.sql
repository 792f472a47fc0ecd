-- Counts the consecutive failures of endpoints ($1): whether there was a success ($2), the number of
-- failures after it ($3), and the error of the last one ($4). A failure at least $6 milliseconds after the
-- last counted span is another span. From $7 failures on, no delivery is claimed for a while: $8
-- milliseconds, and with each further failure twice as long, up to $9. An endpoint that has no failure,
-- and had none, is not written. The rows are locked in the order of their ids. A clock that was set back
-- moves the times with it.
WITH now AS MATERIALIZED (
    SELECT coalesce($5::timestamptz, clock_timestamp()) AS at
), held AS MATERIALIZED (
    SELECT endpoint.id, counted.failures = 0 AS is_well, counted.last_error,
           CASE WHEN counted.has_succeeded THEN 0 ELSE least(endpoint.failures, 1000000000) END
               + counted.failures AS failures,
           CASE WHEN counted.has_succeeded OR endpoint.failing_since IS NULL THEN now.at
                ELSE least(endpoint.failing_since, now.at) END AS failing_since,
           CASE WHEN counted.has_succeeded THEN 0 ELSE endpoint.failing_spans END AS spans,
           CASE WHEN counted.has_succeeded OR endpoint.failing_span_at IS NULL THEN NULL
                ELSE least(endpoint.failing_span_at, now.at) END AS span_at
    FROM now
    CROSS JOIN unnest($1::text[], $2::bool[], $3::int4[], $4::text[])
        AS counted (endpoint, has_succeeded, failures, last_error)
    JOIN hapax.endpoint AS endpoint ON endpoint.id = counted.endpoint
    WHERE endpoint.deleted_at IS NULL AND (counted.failures > 0 OR endpoint.failures > 0)
    ORDER BY endpoint.id
    FOR UPDATE OF endpoint
), spanned AS MATERIALIZED (
    SELECT held.id, held.is_well, held.failures, held.failing_since, held.last_error, held.spans,
           held.span_at,
           held.span_at IS NULL
               OR held.span_at + $6::int8 * interval '1 millisecond' <= now.at AS is_next
    FROM held, now
)
UPDATE hapax.endpoint AS endpoint
SET failures = spanned.failures,
    failing_since = CASE WHEN NOT spanned.is_well THEN spanned.failing_since END,
    failing_spans = CASE WHEN spanned.is_well THEN 0 ELSE spanned.spans + spanned.is_next::int4 END,
    failing_span_at = CASE WHEN spanned.is_well THEN NULL
                           WHEN spanned.is_next THEN now.at
                           ELSE spanned.span_at END,
    slow_until = CASE WHEN spanned.failures >= $7::int4 THEN now.at
        + least($9::int8, $8::int8 << least(spanned.failures - $7::int4, 20)) * interval '1 millisecond'
        END,
    last_error = CASE WHEN NOT spanned.is_well THEN spanned.last_error END
FROM spanned, now
WHERE endpoint.id = spanned.id
RETURNING endpoint.id, endpoint.version, endpoint.failures, endpoint.failing_spans,
          (extract(epoch FROM now.at - endpoint.failing_since) / 0.001)::int8 AS failing_ms
