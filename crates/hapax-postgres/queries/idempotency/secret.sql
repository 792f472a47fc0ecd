-- Reads the secret from which keys are derived; a process reads it once.
SELECT secret FROM hapax.secret WHERE name = 'derivation'
