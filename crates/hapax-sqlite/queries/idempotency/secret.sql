-- Reads the secret from which keys are derived; a process reads it once.
SELECT secret FROM hapax_secret WHERE name = 'derivation'
