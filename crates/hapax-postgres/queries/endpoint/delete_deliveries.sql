-- Deletes deliveries of an endpoint ($2) of a tenant ($1), at most $3. One that is being settled is left to the
-- relays: its transaction waits for the row of the endpoint, which is deleted already, so waiting for it would
-- be a deadlock.
DELETE FROM hapax.endpoint_delivery
WHERE id IN (
    SELECT id
    FROM hapax.endpoint_delivery
    WHERE endpoint = $2::text AND tenant = $1::text
    LIMIT $3::int8
    FOR UPDATE SKIP LOCKED
)
