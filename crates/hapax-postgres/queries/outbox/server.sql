-- Returns whether this is a standby, which takes no writes, and whose snapshots do not show which
-- transactions are writing; and which settings allow a power failure to undo commits.
-- Only here: the SQLite store is one file, and sets what it needs itself.
SELECT pg_is_in_recovery(),
       concat_ws(', ',
           CASE current_setting('fsync') WHEN 'off' THEN 'fsync' END,
           CASE current_setting('full_page_writes') WHEN 'off' THEN 'full_page_writes' END,
           CASE current_setting('synchronous_commit') WHEN 'off' THEN 'synchronous_commit' END)
