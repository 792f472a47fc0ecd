-- Writes down who holds a part that was opened.
UPDATE hapax_checkpoint SET
    node = ?2,
    taken_at = ?3
WHERE destination = ?1
