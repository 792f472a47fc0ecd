-- Raises sequences that are below numbers that were given already, and writes events again, with
-- new ids, whose ids partitions may already have passed. Returns from which to which number the
-- sequence of events was raised, if it was, how many events were written again, and whether nothing
-- is left to do.
-- Only here: the SQLite store derives its counter from the rows.
SELECT raised_from, raised_to, moved, is_all
FROM hapax.raise_sequences()
