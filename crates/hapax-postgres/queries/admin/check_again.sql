-- Makes purges examine segments again for events that deliveries need, including events that they
-- have already examined: delivered events are about to be delivered again.
-- Only here: the SQLite store has no segments.
UPDATE hapax.rotation SET kept_until = NULL
WHERE kept_until IS NOT NULL
