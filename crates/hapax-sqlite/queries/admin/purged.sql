-- Records that all data of a removed destination is deleted: its name is free.
UPDATE hapax_declaration SET
    version = (SELECT 1 + max(version) FROM hapax_declaration),
    purged_at = ?2
WHERE name = ?1 AND removed_at IS NOT NULL
