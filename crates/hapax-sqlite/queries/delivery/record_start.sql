-- Records where a destination starts.
INSERT INTO hapax_start (destination, frontier, recorded_at)
VALUES (?1, ?2, ?3)
