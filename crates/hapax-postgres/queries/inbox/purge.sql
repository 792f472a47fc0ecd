-- Deletes a batch of messages that are so old that no sender will send them again, and skips locked
-- rows.
WITH old AS MATERIALIZED (
    SELECT ctid AS row
    FROM hapax.inbox_message
    WHERE received_at <= coalesce($1::timestamptz, clock_timestamp())
        - $2::int8 * interval '1 millisecond'
    ORDER BY received_at
    LIMIT $3::int8
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM hapax.inbox_message
    WHERE ctid = ANY (ARRAY(SELECT row FROM old))
    RETURNING 1
)
SELECT count(*)
FROM gone
