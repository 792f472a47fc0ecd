-- Lists the partitions that were opened, with the declaration of their destination, their checkpoint
-- and their owner, unless the destination is being removed.
SELECT opened.name, opened.disabled_at, opened.disabled_reason, said.paused_at, said.paused_by,
       said.spec, place.node, coalesce(place.frontier, 0) AS frontier,
       coalesce(place.settled, '') AS settled,
       coalesce(place.written_at, opened.opened_at) AS written_at, node.seen_at
FROM hapax_destination AS opened
LEFT JOIN hapax_declaration AS said
    ON said.name = substr(opened.name, 1, instr(opened.name || '/', '/') - 1)
LEFT JOIN hapax_checkpoint AS place ON place.destination = opened.name
LEFT JOIN hapax_node AS node ON node.name = place.node
WHERE said.removed_at IS NULL
ORDER BY opened.name
