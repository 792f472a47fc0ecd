-- Finds the highest position that was ever used, so that the writer's counter never goes back. The
-- checkpoints, the starts of destinations and the positions of polling endpoints are included in case
-- rows were deleted by hand.
SELECT max(
    coalesce((SELECT max(id) FROM hapax_outbox_event), 0),
    coalesce((SELECT max(frontier) FROM hapax_checkpoint), 0),
    coalesce((SELECT max(frontier) FROM hapax_start), 0),
    coalesce((SELECT max(frontier) FROM hapax_poll_endpoint), 0)
)
