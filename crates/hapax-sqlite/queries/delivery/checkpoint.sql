-- Moves a destination's checkpoint.
UPDATE hapax_checkpoint SET
    frontier = ?2,
    settled = ?3,
    offered = ?4,
    written_at = ?5
WHERE destination = ?1
