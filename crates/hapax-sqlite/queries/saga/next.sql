-- When the next saga falls due that is somebody's here: one that is held, once its lease lapses.
SELECT min(max(wake_at, lease_until))
FROM hapax_saga
WHERE wake_at IS NOT NULL
  AND (name, version) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?1))
