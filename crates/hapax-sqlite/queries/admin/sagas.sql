-- Reads what decides which sagas of a state (?1) are listed, by id, after an id (?2), and visits at
-- most ?3.
SELECT id, name, version
FROM hapax_saga INDEXED BY hapax_saga_state
WHERE state = ?1 AND id > ?2
ORDER BY id
LIMIT ?3
