"""The shop of the suite.

HAPAX_FRAMEWORK and HAPAX_DRIVER choose a module of ``frameworks`` and of ``drivers``, DATABASE_URL
the database, PORT the port of loopback.
"""

import os
from importlib import import_module

framework = os.environ.get("HAPAX_FRAMEWORK", "fastapi")
driver = os.environ.get("HAPAX_DRIVER", "psycopg").replace("-", "_")

import_module(f"frameworks.{framework}_app").serve(
    import_module(f"drivers.{driver}_driver"), int(os.environ["PORT"])
)
