-- Records that a destination ($1) lags, unless that is recorded. The time ($2) is that of the database's
-- clock unless one is given.
INSERT INTO hapax.lagging_destination (destination, lagging_since)
VALUES ($1::text, coalesce($2::timestamptz, clock_timestamp()))
ON CONFLICT (destination) DO NOTHING
RETURNING 1
