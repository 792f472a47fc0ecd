-- Appends one attempt to the log.
INSERT INTO hapax_attempt
    (destination, position, number, started_at, duration_ms, outcome, status, error,
     response_head)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
