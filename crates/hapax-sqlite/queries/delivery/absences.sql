-- Lists all destinations with their recorded absences, and whether a node owns each of them that
-- has sent a heartbeat since ?1.
-- Only here: the PostgreSQL store records absences in a function of its schema.
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
       absence.epoch AS absent_epoch, absence.written_at AS absent_written_at,
       absence.since, absence.noted_at
FROM hapax_checkpoint AS place
LEFT JOIN hapax_absence AS absence ON absence.destination = place.destination
