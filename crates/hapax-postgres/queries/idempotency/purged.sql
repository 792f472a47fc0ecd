-- Reads the number of the last purge, in which history it was counted, and the keys that were purged
-- behind another number.
WITH last AS MATERIALIZED (
    SELECT hapax.history() AS history,
           coalesce((SELECT number FROM hapax.purge_count), 0) AS number
)
SELECT last.history, last.number, purge.tenant, purge.operation, purge.key
FROM last
LEFT JOIN hapax.key_purge AS purge ON purge.number > $1::int8
