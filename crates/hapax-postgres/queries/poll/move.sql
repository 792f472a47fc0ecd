-- Moves the committed position of a polling endpoint ($1, $2) to a frontier ($3, $4) if it is where it
-- was read ($5, $6). Returns whether it did, and whether the frontier was read in this history: a
-- position of another one would skip events that have the same ids here.
WITH checked AS MATERIALIZED (
    SELECT hapax.is_read_in(hapax.history(), $4::text)
       AND $3::int8 <= (SELECT last_value FROM hapax.outbox_event_id) AS is_valid
), moved AS (
    UPDATE hapax.poll_endpoint
    SET frontier = $3::int8,
        snapshot = $4::text,
        committed_at = coalesce($7::timestamptz, clock_timestamp())
    WHERE name = $1::text
      AND secret = $2::bytea
      AND frontier = $5::int8
      AND snapshot IS NOT DISTINCT FROM $6::text
      AND (SELECT is_valid FROM checked)
    RETURNING 1
)
SELECT is_valid, EXISTS (SELECT 1 FROM moved) AS is_moved
FROM checked
