"""Receives webhooks and verifies them with the `standardwebhooks` library of PyPI.

Usage: verify.py SECRET. Prints its port. Responds with 204 if the signature is valid, and with 400
if it is not.
"""

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from standardwebhooks.webhooks import Webhook

webhook = Webhook(sys.argv[1])


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            event = webhook.verify(body, dict(self.headers))
            accepted = set(event) == {"type", "timestamp", "data"}
        except Exception:
            accepted = False
        self.send_response(204 if accepted else 400)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Receiver)
print(server.server_port, flush=True)
server.serve_forever()
