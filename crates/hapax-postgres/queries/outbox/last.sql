-- Reads the highest position that was ever given. Between two turns of the ring lie positions that
-- are given to nothing: it says nothing about how many events there are.
SELECT last_value - (NOT is_called)::int4
FROM hapax.outbox_event_id
