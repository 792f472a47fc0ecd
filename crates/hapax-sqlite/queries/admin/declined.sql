-- Reads the error of the last attempt at a delivery (?1 of ?2) and the type of its event, if its
-- receiver declined it.
SELECT last.error, event.type
FROM (
    SELECT outcome, error
    FROM hapax_attempt
    WHERE position = ?2 AND destination = ?1
    ORDER BY number DESC, id DESC
    LIMIT 1
) AS last
CROSS JOIN hapax_outbox_event AS event ON event.id = ?2
WHERE last.outcome = 'declined'
