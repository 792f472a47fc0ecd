-- A sign of life: changes nothing when another owner came.
UPDATE hapax.checkpoint SET written_at = $3::timestamptz
WHERE destination = $1::text AND epoch = $2::int8
RETURNING 1
