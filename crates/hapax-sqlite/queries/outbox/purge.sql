-- Deletes one event that the batch named.
DELETE FROM hapax_outbox_event
WHERE id = ?1
