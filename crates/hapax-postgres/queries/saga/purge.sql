-- Deletes a batch of sagas that ended long ago, and skips locked rows. Their steps and signals are
-- deleted with them.
WITH gone AS (
    DELETE FROM hapax.saga
    WHERE id = ANY (ARRAY(
        SELECT old.id
        FROM hapax.saga AS old
        WHERE old.ended_at <= coalesce($1::timestamptz, clock_timestamp())
                              - $2::int8 * interval '1 millisecond'
        ORDER BY old.ended_at
        LIMIT $3::int8
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
)
SELECT count(*)
FROM gone
