-- Deletes what a saga was told that is gone.
-- Only here: the other store's rows go with the saga's own, by a foreign key.
DELETE FROM hapax_saga_signal WHERE saga = ?1
