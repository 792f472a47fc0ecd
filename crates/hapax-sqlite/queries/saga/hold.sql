-- Holds the row of an owned saga, and says how much it was told: no row means that another owner has
-- come since.
UPDATE hapax_saga SET lease_until = ?3
WHERE id = ?1 AND epoch = ?2
RETURNING (SELECT count(*) FROM hapax_saga_signal WHERE saga = ?1)
