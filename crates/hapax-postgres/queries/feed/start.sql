-- Records where a feed starts: at its first start, and after a gap was accepted. The position is null
-- before the slot is created. If another feeder has recorded a position meanwhile, it remains.
-- Only here: the SQLite store has no feeds.
INSERT INTO hapax.feed AS feed
    (name, slot, system_identifier, timeline, confirmed_lsn, updated_at)
VALUES ($1::text, $2::text, $3::text, $4::int8, $5::pg_lsn, $6::timestamptz)
ON CONFLICT (name) DO UPDATE
SET slot = excluded.slot, system_identifier = excluded.system_identifier,
    timeline = excluded.timeline, confirmed_lsn = excluded.confirmed_lsn,
    updated_at = excluded.updated_at
WHERE feed.confirmed_lsn IS NULL AND feed.gap IS NULL
