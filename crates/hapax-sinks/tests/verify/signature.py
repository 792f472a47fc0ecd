"""Reads requests from a file, one JSON object per line, and prints the signature that botocore computes for each."""

import json
import sys

from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

for line in open(sys.argv[1], encoding="utf-8"):
    given = json.loads(line)
    kind = S3SigV4Auth if given["service"] == "s3" else SigV4Auth
    credentials = Credentials(given["key"], given["secret"])
    auth = kind(credentials, given["service"], given["region"])
    request = AWSRequest(given["method"], given["url"], given["headers"], given["body"])
    request.context["timestamp"] = given["headers"]["x-amz-date"]
    request.context["payload_signing_enabled"] = True
    text = auth.string_to_sign(request, auth.canonical_request(request))
    print(auth.signature(text, request))
