-- Says whether a sequence stands below a number that was given already, or events that were written
-- while one did are still to be looked through.
-- Only here: the other store counts by the rows that there are.
SELECT EXISTS (SELECT 1 FROM hapax.low_sequences()) OR hapax.has_misplaced()
