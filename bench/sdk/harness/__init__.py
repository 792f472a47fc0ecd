"""The harness: installs, starts, checks and measures the services."""
