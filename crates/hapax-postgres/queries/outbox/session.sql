-- Names the session of the server. Behind a pooler in transaction mode, two connections get the
-- same one, or a connection gets another one each time.
-- Only here: a SQLite store has no server.
SELECT pg_backend_pid() AS pid
