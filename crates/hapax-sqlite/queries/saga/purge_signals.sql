-- Deletes the signals of a purged saga.
-- Only here: on PostgreSQL they are deleted with the saga, by a foreign key.
DELETE FROM hapax_saga_signal WHERE saga = ?1
