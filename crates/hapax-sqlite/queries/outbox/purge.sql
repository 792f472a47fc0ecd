-- Deletes one event of the batch.
DELETE FROM hapax_outbox_event
WHERE id = ?1
