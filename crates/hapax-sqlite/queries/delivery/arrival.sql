-- Records first attempts that succeeded. If a settlement is written again, its row exists already
-- and may contain fewer positions.
INSERT INTO hapax_arrival AS known
    (partition, positions, first, last, started_at, duration_ms, status)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (first, partition, started_at) DO UPDATE SET
    positions = excluded.positions,
    last = excluded.last,
    duration_ms = excluded.duration_ms,
    status = excluded.status
WHERE known.last < excluded.last
