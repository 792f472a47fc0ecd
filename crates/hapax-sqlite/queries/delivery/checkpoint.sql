-- Updates a destination's checkpoint, with the number of the settlement that wrote it.
UPDATE hapax_checkpoint SET
    frontier = ?2,
    settled = ?3,
    offered = ?4,
    written_at = ?5,
    settlement = ?6
WHERE destination = ?1
