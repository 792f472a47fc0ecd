-- Counts the sagas that need attention, by name.
SELECT name, count(*)
FROM hapax.saga
WHERE state = 'needs_attention'
GROUP BY name
ORDER BY name
