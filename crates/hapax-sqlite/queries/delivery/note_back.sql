-- Deletes the absence of a destination that is served again.
-- Only here: the PostgreSQL store records absences in a function of its schema.
DELETE FROM hapax_absence
WHERE destination = ?1
