-- Records that no relay serves a destination, and since when.
-- Only here: the PostgreSQL store records absences in a function of its schema.
INSERT INTO hapax_absence (destination, epoch, written_at, since, noted_at)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (destination) DO UPDATE SET
    epoch = excluded.epoch,
    written_at = excluded.written_at,
    since = excluded.since,
    noted_at = excluded.noted_at
