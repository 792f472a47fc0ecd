-- Records the result of the thumbnail job. Changes nothing if the job has finished before.
UPDATE shop_upload
SET state = ?2, reason = ?3
WHERE id = ?1 AND state = 'pending'
