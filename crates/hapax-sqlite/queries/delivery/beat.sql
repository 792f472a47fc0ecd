-- A sign of life: changes nothing when another owner came.
UPDATE hapax_checkpoint SET written_at = ?3
WHERE destination = ?1 AND epoch = ?2
