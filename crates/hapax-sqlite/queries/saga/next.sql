-- Returns when the next saga of these kinds is due; one that is owned is due when its lease
-- expires.
SELECT min(max(wake_at, lease_until))
FROM hapax_saga
WHERE wake_at IS NOT NULL
  AND (name, version) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?1))
