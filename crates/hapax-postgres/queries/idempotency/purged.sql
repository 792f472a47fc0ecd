-- Reads the number of the last purge, the history in which purges are numbered, and the keys that
-- were purged after the number $1.
WITH last AS MATERIALIZED (
    SELECT hapax.history() AS history,
           coalesce((SELECT number FROM hapax.purge_count), 0) AS number
)
SELECT last.history, last.number, purge.tenant, purge.operation, purge.key
FROM last
LEFT JOIN hapax.key_purge AS purge ON purge.number > $1::int8
