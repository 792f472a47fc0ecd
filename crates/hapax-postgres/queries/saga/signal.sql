-- Stores a signal of a saga that has not ended. The first signal of each name is kept. The saga's
-- row counts its signals: see the table.
WITH said AS (
    INSERT INTO hapax.saga_signal (saga, name, payload, received_at)
    SELECT id, $2::text, $3::bytea,
           date_trunc('milliseconds', coalesce($4::timestamptz, clock_timestamp()))
    FROM hapax.saga
    WHERE id = $1::text AND ended_at IS NULL
    ON CONFLICT (saga, name) DO NOTHING
    RETURNING saga
)
UPDATE hapax.saga SET
    signals_received = signals_received + 1
FROM said
WHERE id = said.saga
