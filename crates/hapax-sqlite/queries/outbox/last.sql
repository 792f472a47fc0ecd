-- Finds the highest position ever known, so that the writer's counter never goes back: the
-- checkpoints speak for rows that somebody deleted by hand.
SELECT max(
    coalesce((SELECT max(id) FROM hapax_outbox_event), 0),
    coalesce((SELECT max(frontier) FROM hapax_checkpoint), 0)
)
