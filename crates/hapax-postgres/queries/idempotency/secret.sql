-- The secret under which keys are derived; a process reads it once.
SELECT secret FROM hapax.secret WHERE name = 'derivation'
