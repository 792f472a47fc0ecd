-- Reads the signals of a saga in order.
SELECT name, payload, received_at
FROM hapax_saga_signal
WHERE saga = ?1
ORDER BY rowid
