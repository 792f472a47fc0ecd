"""Serve the shop: ``python -m tests.services.serve FRAMEWORK PORT``."""

from __future__ import annotations

import logging
import sys
from importlib import import_module

framework, port = sys.argv[1], int(sys.argv[2])
module = import_module(f"tests.services.{framework}_service")
if framework in {"fastapi", "payments", "starlette"}:
    import uvicorn

    uvicorn.run(module.app, host="127.0.0.1", port=port, log_level="error", access_log=False)
else:
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    make_server("127.0.0.1", port, module.app, threaded=True).serve_forever()
