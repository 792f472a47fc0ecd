-- Finds the highest position that was ever used, so that the writer's counter never goes back. The
-- checkpoints and the starts of destinations are included in case rows were deleted by hand.
SELECT max(
    coalesce((SELECT max(id) FROM hapax_outbox_event), 0),
    coalesce((SELECT max(frontier) FROM hapax_checkpoint), 0),
    coalesce((SELECT max(frontier) FROM hapax_start), 0)
)
