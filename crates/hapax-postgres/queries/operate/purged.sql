-- Notes that nothing is left of a removed destination: its name is free.
-- Only here: the other store has one process, and nobody beside it who operates.
UPDATE hapax.declaration SET
    version = nextval('hapax.declaration_version'),
    purged_at = clock_timestamp()
WHERE name = $1::text AND removed_at IS NOT NULL
RETURNING 1
