-- Returns whether the server takes writes from this session. A standby, and a session that is read-only
-- by default, respond to reads. Without a reason to write, nothing else shows it.
-- Only here: the only writer of an SQLite file is the store, which finds it out when it writes.
SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off' AS accepts_writes
