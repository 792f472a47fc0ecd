-- Lists all destinations with what is known of their absence, and whether a node holds them that
-- gave a sign of life since ?1.
-- Only here: the other store notes absences in a function of its schema.
SELECT place.destination, place.epoch, place.written_at, place.frontier,
       EXISTS (
           SELECT 1
           FROM hapax_node AS node
           WHERE node.name = place.node AND node.seen_at > ?1
       ) AS is_held,
       EXISTS (
           SELECT 1
           FROM hapax_destination AS disabled
           WHERE disabled.name = place.destination AND disabled.disabled_at IS NOT NULL
       ) AS is_disabled,
       absence.epoch, absence.written_at, absence.since, absence.noted_at
FROM hapax_checkpoint AS place
LEFT JOIN hapax_absence AS absence ON absence.destination = place.destination
