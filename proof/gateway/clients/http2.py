"""A client on httpx with HTTP/2: sends orders, each one twice, and prints the responses as JSON.

    python3 http2.py URL KEYS CA
"""

import json
import ssl
import sys

import httpx


def order(client, url, key):
    answer = client.post(url + "/orders", json={"item": "tea", "for": key},
                         headers={"Idempotency-Key": key})
    said = answer.headers.get("idempotency-status")
    return {"key": key, "status": answer.status_code, "said": said, "body": answer.text,
            "version": answer.http_version}


def main():
    url, keys, authority = sys.argv[1:]
    context = ssl.create_default_context(cafile=authority)
    with httpx.Client(http2=True, verify=context, trust_env=False) as client:
        first = [order(client, url, key) for key in keys.split(",")]
        again = [order(client, url, key) for key in keys.split(",")]
        uploaded = client.put(url + "/upload", content=b"x" * (4 << 20)).json()
        downloaded = len(client.get(url + "/download?bytes=%d" % (4 << 20)).content)
    print(json.dumps({"first": first, "again": again, "uploaded": uploaded["bytes"],
                      "downloaded": downloaded}))


if __name__ == "__main__":
    main()
