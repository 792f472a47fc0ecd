-- Renews the lease of an owned saga, and returns the number of its signals. No row means that
-- another owner has taken the saga since.
UPDATE hapax_saga SET lease_until = ?3
WHERE id = ?1 AND epoch = ?2
RETURNING (SELECT count(*) FROM hapax_saga_signal WHERE saga = ?1)
