-- Whether where a destination starts can still be recorded: it has neither a record nor a partition,
-- and is not removed.
-- Only here: the PostgreSQL store checks this in the statement that records it.
SELECT NOT EXISTS (SELECT 1 FROM hapax_start WHERE destination = ?1)
   AND NOT EXISTS (
       SELECT 1
       FROM hapax_checkpoint
       WHERE substr(destination, 1, instr(destination || '/', '/') - 1) = ?1
   )
   AND NOT EXISTS (
       SELECT 1 FROM hapax_declaration WHERE name = ?1 AND removed_at IS NOT NULL
   ) AS may_start
