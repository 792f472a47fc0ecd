-- Has purges look anew for what deliveries need, behind what they have looked through already: what
-- was delivered is about to be offered again.
-- Only here: the other store has no ring.
UPDATE hapax.turn SET kept_until = NULL
WHERE kept_until IS NOT NULL
