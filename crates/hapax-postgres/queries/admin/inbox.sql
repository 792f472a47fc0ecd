-- Lists accepted messages, the newest first, and visits at most $7 rows: see keys. A page starts
-- after a time ($4, in microseconds) and a number that is computed from the message's id, its
-- consumer and its source ($5). Every row contains the place where the visit ended; if nothing
-- matches, one row contains only that.
WITH looked AS MATERIALIZED (
    SELECT consumer, message_id, source, payload_hash, received_at, processed_at, result,
           (extract(epoch FROM received_at) / 0.000001)::int8 AS micros,
           hashtextextended(message_id || E'\n' || consumer || E'\n' || source, 0) AS tie
    FROM hapax.inbox_message
    WHERE received_at <= 'epoch'::timestamptz + $4::int8 * interval '1 microsecond'
      AND (received_at < 'epoch'::timestamptz + $4::int8 * interval '1 microsecond'
           OR hashtextextended(message_id || E'\n' || consumer || E'\n' || source, 0) < $5::int8)
    ORDER BY received_at DESC
    FETCH FIRST ($7::int8) ROWS WITH TIES
), matching AS (
    SELECT consumer, message_id, source, payload_hash, received_at, processed_at, result, micros, tie
    FROM looked
    WHERE ($1::text IS NULL OR consumer = $1::text)
      AND ($2::text IS NULL OR source = $2::text)
      AND ($3::timestamptz IS NULL OR received_at >= $3::timestamptz)
    ORDER BY micros DESC, tie DESC
    LIMIT $6::int8
), ends AS (
    SELECT (SELECT count(*) FROM looked) AS count, micros, tie
    FROM looked
    ORDER BY micros, tie
    LIMIT 1
)
SELECT ends.count AS looked, ends.micros AS end_micros, ends.tie AS end_tie, consumer,
       message_id, source, encode(payload_hash, 'hex') AS payload_hash, received_at, processed_at,
       result, matching.micros, matching.tie
FROM ends
LEFT JOIN matching ON true
ORDER BY matching.micros DESC, matching.tie DESC
