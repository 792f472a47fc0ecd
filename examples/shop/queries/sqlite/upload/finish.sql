-- Changes nothing when the job was done before.
UPDATE shop_upload
SET state = ?2, reason = ?3
WHERE id = ?1 AND state = 'pending'
