-- Deletes the oldest attempts that started before a time (?1), at most ?2. Ids and times rise together,
-- so the search ends with the first rows. A clock that was wrong has left attempts of the
-- future, after a time (?3): they are deleted too, because the rows after them would stay until then.
DELETE FROM hapax_endpoint_attempt
WHERE id IN (
    SELECT oldest.id
    FROM (SELECT id, started_at FROM hapax_endpoint_attempt ORDER BY id LIMIT ?2) AS oldest
    WHERE oldest.started_at NOT BETWEEN ?1 AND ?3
)
