-- Reads the number of the last purge, and the keys that were purged after the number ?1.
SELECT last.number, purge.tenant, purge.operation, purge.key
FROM (SELECT coalesce(max(number), 0) AS number FROM hapax_key_purge) AS last
LEFT JOIN hapax_key_purge AS purge ON purge.number > ?1
