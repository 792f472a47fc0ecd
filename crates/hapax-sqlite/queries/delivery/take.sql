-- Records the node that owns a partition after it was opened.
UPDATE hapax_checkpoint SET
    node = ?2,
    taken_at = ?3
WHERE destination = ?1
