"""An OTLP receiver over HTTP that reads requests with OpenTelemetry's own protobuf classes.

Writes each span as a line of JSON to the file that it is given, and its address to standard
output. A request that the classes cannot read, or that has not the header it should have, is
refused; what was refused is a line too, for the test to fail on.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

spans = open(sys.argv[1], "a", encoding="utf-8")
authorization = sys.argv[2] if len(sys.argv) > 2 else None
lock = threading.Lock()


def value_of(value):
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else None


def attributes_of(pairs):
    return {pair.key: value_of(pair.value) for pair in pairs}


def told(request):
    for resource in request.resource_spans:
        of = attributes_of(resource.resource.attributes)
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield {
                    "service": of["service.name"],
                    "resource": of,
                    "scope": scope.scope.name,
                    "trace_id": span.trace_id.hex(),
                    "span_id": span.span_id.hex(),
                    "parent_id": span.parent_span_id.hex(),
                    "name": span.name,
                    "kind": Span.SpanKind.Name(span.kind),
                    "status": Status.StatusCode.Name(span.status.code),
                    "flags": span.flags,
                    "nanos": span.end_time_unix_nano - span.start_time_unix_nano,
                    "started": span.start_time_unix_nano,
                    "attributes": attributes_of(span.attributes),
                    "unknown": len(span.events) + len(span.links),
                }


def write(lines):
    with lock:
        for line in lines:
            spans.write(json.dumps(line) + "\n")
        spans.flush()


class Collector(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        is_known = (
            self.path == "/v1/traces"
            and self.headers["content-type"] == "application/x-protobuf"
            and authorization in (None, self.headers["authorization"])
        )
        if not is_known:
            write([{"refused": self.path}])
            return self.answer(400)
        try:
            request = ExportTraceServiceRequest.FromString(body)
        except Exception as error:  # the classes raise what they like
            write([{"refused": str(error)}])
            return self.answer(400)
        write(told(request))
        self.answer(200)

    def answer(self, status):
        body = ExportTraceServiceResponse().SerializeToString()
        self.send_response(status)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
server.serve_forever()
