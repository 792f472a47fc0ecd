-- Records that a destination ($1) has caught up, if it is recorded that it lags.
DELETE FROM hapax.lagging_destination
WHERE destination = $1::text
RETURNING 1
