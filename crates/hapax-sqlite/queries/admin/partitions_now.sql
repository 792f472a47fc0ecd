-- Lists the partitions that were opened, with the declaration of their destination, their checkpoint
-- and their owner, unless the destination is being removed. An actor of a tenant (?1) only sees the
-- partitions of destinations that take only this tenant's events.
SELECT opened.name, opened.disabled_at, opened.disabled_reason, said.paused_at, said.paused_by,
       said.spec, place.node, coalesce(place.frontier, 0) AS frontier,
       coalesce(place.settled, '') AS settled,
       coalesce(place.written_at, opened.opened_at) AS written_at, place.taken_at, node.seen_at
FROM hapax_destination AS opened
LEFT JOIN hapax_declaration AS said
    ON said.name = CASE instr(opened.name, '/')
        WHEN 0 THEN opened.name
        ELSE substr(opened.name, 1, instr(opened.name, '/') - 1)
    END
LEFT JOIN hapax_checkpoint AS place ON place.destination = opened.name
LEFT JOIN hapax_node AS node ON node.name = place.node
WHERE said.removed_at IS NULL
  AND (?1 IS NULL OR json_extract(said.spec, '$.tenant') = ?1)
ORDER BY opened.name
