-- Raises sequences that stand below numbers which were given already, and writes events anew that were
-- written under ids which parts may have passed. Says from where to where the sequence of events was
-- raised, if it was, how many events were written anew, and whether nothing is left to do.
-- Only here: the other store counts by the rows that there are.
SELECT raised_from, raised_to, moved, is_all
FROM hapax.raise_sequences()
