-- Which transactions can be seen, and which cluster counts them, as a frontier says it: see
-- hapax.is_read_in; and when that is. A standby that takes over counts on, so there is no timeline.
-- Only here: the other store has one process, and nobody beside it who operates.
SELECT pg_current_snapshot()::text || ' - ' || split_part(hapax.history(), '/', 1),
       clock_timestamp()
