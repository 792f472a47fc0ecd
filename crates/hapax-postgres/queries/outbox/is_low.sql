-- Returns whether a sequence is below a number that was given already, or whether events that were
-- written while a sequence was too low still have to be checked.
-- Only here: the SQLite store derives its counter from the rows.
SELECT EXISTS (SELECT 1 FROM hapax.low_sequences()) OR hapax.has_misplaced()
