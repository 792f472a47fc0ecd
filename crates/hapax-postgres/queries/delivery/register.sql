-- Inserts a destination, or enables it if it exists. Returns the reason why it was disabled, if it
-- was.
WITH disabled AS MATERIALIZED (
    SELECT disabled_reason
    FROM hapax.destination
    WHERE name = $1::text AND disabled_at IS NOT NULL
)
INSERT INTO hapax.destination (name, first_opened_at, opened_at)
VALUES ($1::text, $2::timestamptz, $2::timestamptz)
ON CONFLICT (name) DO UPDATE SET
    opened_at = excluded.opened_at,
    disabled_at = NULL,
    disabled_reason = NULL
RETURNING (SELECT disabled_reason FROM disabled)
