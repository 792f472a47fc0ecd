-- Records that a destination (?1) lags since a time (?2), unless that is recorded.
INSERT INTO hapax_lagging_destination (destination, lagging_since)
VALUES (?1, ?2)
ON CONFLICT (destination) DO NOTHING
