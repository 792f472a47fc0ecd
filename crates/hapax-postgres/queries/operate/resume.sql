-- Lets a paused destination go on, or one of which a part is disabled; what a configuration file
-- declares gets a row. The version has its relays take it anew, and who takes it enables it.
-- Only here: the other store has one process, and nobody beside it who operates.
INSERT INTO hapax.declaration AS old (name, version, created_at, changed_at, changed_by)
SELECT $1::text, nextval('hapax.declaration_version'), clock_timestamp(), clock_timestamp(), $2::text
WHERE EXISTS (
    SELECT FROM hapax.declaration WHERE name = $1::text AND paused_at IS NOT NULL
) OR EXISTS (
    SELECT FROM hapax.destination
    WHERE split_part(name, '/', 1) = $1::text AND disabled_at IS NOT NULL
)
ON CONFLICT (name) DO UPDATE SET
    version = excluded.version,
    changed_at = excluded.changed_at,
    changed_by = excluded.changed_by,
    paused_at = NULL,
    paused_by = NULL
WHERE old.removed_at IS NULL
RETURNING 1
