-- Deletes the oldest attempts that started more than $1 milliseconds ago, at most $2. Ids and times rise
-- together, so the search ends with the first rows. A clock that was wrong has left attempts
-- of the future: they are deleted too, because the rows after them would stay until that time. Rows that
-- stay are not locked, because a lock is written to the row.
WITH deleted AS (
    DELETE FROM hapax.endpoint_attempt
    WHERE id IN (
        SELECT attempt.id
        FROM hapax.endpoint_attempt AS attempt
        WHERE attempt.id IN (
            SELECT oldest.id
            FROM (
                SELECT id, started_at
                FROM hapax.endpoint_attempt
                ORDER BY id
                LIMIT $2::int8
            ) AS oldest
            WHERE oldest.started_at NOT BETWEEN
                coalesce($3::timestamptz, clock_timestamp()) - $1::int8 * interval '1 millisecond'
                AND coalesce($3::timestamptz, clock_timestamp()) + $1::int8 * interval '1 millisecond'
        )
        FOR UPDATE SKIP LOCKED
    )
    RETURNING 1
)
SELECT count(*) AS deleted FROM deleted
