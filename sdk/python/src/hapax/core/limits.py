"""Upper limits and defaults, the same as those of the services in Rust."""

KEY_BYTES_MAX = 255
"""Maximum length of a key, a tenant and an operation in bytes."""
BODY_BYTES_MAX = 1024 * 1024
"""Default maximum of a request body in bytes."""
RESPONSE_BYTES_MAX = 4 * 1024 * 1024
"""Maximum of a stored response in bytes. A response is stored in a table row."""
JSON_MEMBERS_MAX = 10_000
"""Maximum number of members of a JSON object, with those of the objects around it."""
JSON_DEPTH_MAX = 128
"""Maximum nesting of JSON. The canonical form is computed recursively."""
MULTIPART_PARTS_MAX = 256
"""Maximum number of parts of a multipart body."""
SIGNATURES_MAX = 16
"""Maximum number of signatures of one webhook."""
WAIT = 1.0
"""Default time in seconds that a duplicate waits for the first request."""
RETENTION = 24 * 3600.0
"""Default retention of a response in seconds."""
RETRY_AFTER = 1.0
"""Default ``Retry-After`` in seconds."""
LEASE = 10.0
"""Default time in seconds that a key in phases belongs to its owner unless the lease is renewed."""
LEASE_MAX = 24 * 3600.0
"""The longest lease in seconds, as in ``hapax.enter``."""
PHASE_DATA_BYTES_MAX = 1024 * 1024
"""Maximum length of the results of phases in bytes, as in ``hapax.phase``."""
COMMIT_RECOVERY = 5.0
"""Time in seconds that is spent on finding out what became of a commit, or on letting a key go."""
