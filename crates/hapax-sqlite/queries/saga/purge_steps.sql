-- Deletes the steps of a saga that is gone.
-- Only here: the other store's rows go with the saga's own, by a foreign key.
DELETE FROM hapax_saga_step WHERE saga = ?1
