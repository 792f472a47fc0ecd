-- Records that a destination (?1) has caught up, if it is recorded that it lags.
DELETE FROM hapax_lagging_destination
WHERE destination = ?1
