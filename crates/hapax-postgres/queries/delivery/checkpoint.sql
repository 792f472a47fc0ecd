-- Moves a destination's checkpoint.
UPDATE hapax.checkpoint SET
    frontier = $2::int8,
    snapshot = $3::text,
    settled = $4::text,
    offered = $5::text,
    written_at = $6::timestamptz
WHERE destination = $1::text
