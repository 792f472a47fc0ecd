-- Notes that a destination is no longer absent.
-- Only here: the other store notes absences in a function of its schema.
DELETE FROM hapax_absence
WHERE destination = ?1
