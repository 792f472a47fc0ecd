-- Records that all data of a removed destination is deleted: its name is free.
UPDATE hapax.declaration SET
    version = nextval('hapax.declaration_version'),
    purged_at = clock_timestamp()
WHERE name = $1::text AND removed_at IS NOT NULL
RETURNING 1
