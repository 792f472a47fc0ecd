-- Moves a destination's checkpoint, and notes which settlement did.
UPDATE hapax_checkpoint SET
    frontier = ?2,
    settled = ?3,
    offered = ?4,
    written_at = ?5,
    settlement = ?6
WHERE destination = ?1
