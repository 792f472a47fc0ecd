"""Verifies the signature of a token with the key of a service account, and prints the claims of the token."""

import base64
import json
import sys

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding


def decoded(part):
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


with open(sys.argv[1], encoding="utf-8") as file:
    account = json.load(file)
header, claims, signature = sys.argv[2].split(".")
assert json.loads(decoded(header)) == {"alg": "RS256", "typ": "JWT", "kid": account["private_key_id"]}
key = serialization.load_pem_private_key(account["private_key"].encode(), None).public_key()
key.verify(decoded(signature), f"{header}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256())
print(decoded(claims).decode())
