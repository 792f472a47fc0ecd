-- Lets a paused destination go on.
-- Only here: the other store has one process, and nobody beside it who operates.
UPDATE hapax.declaration SET
    version = nextval('hapax.declaration_version'),
    changed_at = clock_timestamp(),
    changed_by = $2::text,
    paused_at = NULL,
    paused_by = NULL
WHERE name = $1::text AND paused_at IS NOT NULL AND removed_at IS NULL
RETURNING 1
