"""Makes jwt.json and certificates.json: test vectors from an independent implementation.

Run it with PyJWT 2.10.1 and cryptography 50.0.2. The keys are only for tests: the RSA keys are the
files test-key-*.pem, all others are derived from fixed numbers. RSA-PSS and ECDSA signatures are
random, so every run writes other tokens.
"""

import base64
import datetime
import hashlib
import hmac
import json
import pathlib

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, utils
from cryptography.x509.oid import NameOID

HERE = pathlib.Path(__file__).parent
NOW = 1_800_000_000
ISSUER = "https://issuer.example"
AUDIENCE = "hapax-gateway"
SECRET = "a shared secret of the test vectors, 32+ bytes"


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def rsa(bits):
    pem = (HERE / f"test-key-rsa-{bits}.pem").read_bytes()
    return serialization.load_pem_private_key(pem, None)


RSA, WEAK = rsa(2048), rsa(1024)
P256 = ec.derive_private_key(0x1234567890ABCDEF, ec.SECP256R1())
P384 = ec.derive_private_key(0xFEDCBA0987654321, ec.SECP384R1())
ED = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))


def number(value, size=None):
    return b64(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


def jwk(key, kid, **more):
    public = key.public_key()
    if hasattr(public, "curve"):
        size = (public.curve.key_size + 7) // 8
        n = public.public_numbers()
        crv = {256: "P-256", 384: "P-384"}[public.curve.key_size]
        body = {"kty": "EC", "crv": crv, "x": number(n.x, size), "y": number(n.y, size)}
    elif hasattr(public, "public_bytes_raw"):
        body = {"kty": "OKP", "crv": "Ed25519", "x": b64(public.public_bytes_raw())}
    else:
        n = public.public_numbers()
        body = {"kty": "RSA", "n": number(n.n), "e": number(n.e)}
    return body | {"kid": kid} | more


JWKS = {
    "keys": [
        jwk(RSA, "rsa", use="sig"),
        jwk(RSA, "rsa-only-rs256", alg="RS256"),
        jwk(RSA, "rsa-enc", use="enc"),
        jwk(WEAK, "rsa-1024"),
        jwk(P256, "p256", alg="ES256", use="sig"),
        jwk(P384, "p384"),
        jwk(ED, "ed", key_ops=["verify"]),
        {"kty": "oct", "kid": "oct", "k": b64(SECRET.encode()), "alg": "HS256"},
        jwk(ED, "twice"),
        jwk(OTHER, "twice"),
    ]
}


def claims(**changes):
    base = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "iat": NOW - 10,
        "nbf": NOW - 10,
        "exp": NOW + 300,
        "org": {"tenant": "acme"},
    }
    return {name: value for name, value in (base | changes).items() if value is not None}


def token(key, alg, kid, body=None, **headers):
    return jwt.encode(body or claims(), key, alg, {"kid": kid} | headers)


def raw(header, body, sign=lambda message: ED.sign(message)):
    """A token from the bytes of its header and claims, signed by `sign`."""
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    message = f"{b64(header)}.{b64(body)}".encode()
    return f"{message.decode()}.{b64(sign(message))}"


def ed(body, **headers):
    """A token with a valid signature of the key `ed`."""
    return raw({"alg": "EdDSA", "kid": "ed"} | headers, body)


def text(body):
    return json.dumps(body)


ACCEPTED = {alg: token(RSA, alg, "rsa") for alg in ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]}
ACCEPTED |= {
    "ES256": token(P256, "ES256", "p256"),
    "ES384": token(P384, "ES384", "p384"),
    "EdDSA": token(ED, "EdDSA", "ed"),
    "Ed25519, the name of RFC 9864": ed(claims(), alg="Ed25519"),
    "a key with alg": token(RSA, "RS256", "rsa-only-rs256"),
    "no key id, one P-384 key": jwt.encode(claims(), P384, "ES384"),
    "audience in a list": token(ED, "EdDSA", "ed", claims(aud=["other", AUDIENCE])),
    "expired within the leeway": token(ED, "EdDSA", "ed", claims(exp=NOW - 29)),
    "not yet valid within the leeway": token(ED, "EdDSA", "ed", claims(nbf=NOW + 29)),
    "fractions of seconds": token(ED, "EdDSA", "ed", claims(exp=NOW + 1.5, iat=NOW - 0.25)),
    "type at+jwt": token(ED, "EdDSA", "ed", typ="at+jwt"),
    "type as a media type": token(ED, "EdDSA", "ed", typ="application/JWT"),
    "no type": ed(claims()),
    "keys in the header are not used": token(ED, "EdDSA", "ed", jku="https://evil.example/", jwk=jwk(OTHER, "ed")),
    "whitespace in the JSON": raw(b' {"alg" : "EdDSA",\n"kid":"ed"} ', claims()),
}

GOOD = ACCEPTED["EdDSA"]
HEAD, BODY, SIGNATURE = GOOD.split(".")
PEM = RSA.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)
DER = RSA.public_key().public_bytes(
    serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
)


def hs(secret, kid, digest=hashlib.sha256, alg="HS256"):
    return raw({"alg": alg, "kid": kid}, claims(), lambda message: hmac.new(secret, message, digest).digest())


def es256(change):
    """A token of ES256 whose signature is made from r and s by `change`."""

    def sign(message):
        der = P256.sign(message, ec.ECDSA(hashes.SHA256()))
        return change(der, *utils.decode_dss_signature(der))

    return raw({"alg": "ES256", "kid": "p256"}, claims(), sign)


def pair(r, s):
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
LAST = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def not_canonical(part):
    """The same bytes in another spelling: unused bits of the last character are set."""
    index = LAST.index(part[-1])
    assert len(part) % 4 in (2, 3)
    return part[:-1] + LAST[index | 1]


REFUSED = []


def refuse(name, value, refusal):
    REFUSED.append({"name": name, "token": value, "refusal": refusal})


for spelling in ["none", "None", "NONE", "nONE", "NoNe", "noNE", "nOnE", "NonE"]:
    for signature in ["", SIGNATURE]:
        header = b64(text({"alg": spelling, "kid": "ed"}).encode())
        refuse(f"alg {spelling}, signature {len(signature)}", f"{header}.{BODY}.{signature}", "Algorithm")
for spelling in ["", " EdDSA", "eddsa", "EDDSA", "ES256K", "ES512", "HS384", "RSA1_5", "dir", "none\u0000"]:
    refuse(f"alg {spelling!r}", ed(claims(), alg=spelling), "Algorithm")
for value in [None, 1, ["EdDSA"], {"alg": "EdDSA"}, True]:
    refuse(f"alg {value!r}", ed(claims(), alg=value), "Algorithm")
refuse("no alg", raw({"kid": "ed"}, claims()), "Algorithm")
refuse("HMAC with the public key as PEM", hs(PEM, "rsa"), "Algorithm")
refuse("HMAC with the public key as PEM without the last line break", hs(PEM.strip(), "rsa"), "Algorithm")
refuse("HMAC with the public key as DER", hs(DER, "rsa"), "Algorithm")
refuse("HMAC with the symmetric key of the set", hs(SECRET.encode(), "oct"), "Algorithm")
refuse("HMAC with an empty secret", hs(b"", "rsa"), "Algorithm")
refuse("algorithm of another kind of key", token(RSA, "RS256", "ed"), "KeyMismatch")
refuse("ES256 with a P-384 key", token(P256, "ES256", "p384"), "KeyMismatch")
refuse("ES384 with a key for ES256", token(P384, "ES384", "p256"), "KeyMismatch")
refuse("EdDSA with an RSA key", ed(claims(), kid="rsa"), "KeyMismatch")
refuse("algorithm that the key is not meant for", token(RSA, "PS256", "rsa-only-rs256"), "KeyMismatch")
refuse("key for encryption", token(RSA, "RS256", "rsa-enc"), "UnknownKey")
refuse("two keys with the id", token(ED, "EdDSA", "twice"), "UnknownKey")
refuse("RSA key of 1024 bits", token(WEAK, "RS256", "rsa-1024"), "Signature")
refuse("no key id, two RSA keys", jwt.encode(claims(), RSA, "RS256"), "NoKeyId")
for kid in ["../../../../dev/null", "/dev/null", "ed'--", "ed\u0000", "ED", " ed", "ed ", "https://evil.example/", "*"]:
    refuse(f"kid {kid!r}", ed(claims(), kid=kid), "UnknownKey")
for kid in ["", "k" * 257, 7, None, ["ed"], {"kid": "ed"}]:
    refuse(f"kid {str(kid)[:20]!r}", ed(claims(), kid=kid), "Malformed")
refuse("signed by another key", token(OTHER, "EdDSA", "ed"), "Signature")
refuse("signed by the key in the header", token(OTHER, "EdDSA", "ed", jwk=jwk(OTHER, "ed")), "Signature")
refuse("no signature", f"{HEAD}.{BODY}.", "Signature")
refuse("signature of another token", f"{HEAD}.{BODY}.{ed(claims(iat=NOW)).split('.')[2]}", "Signature")
refuse("changed claims", f"{HEAD}.{b64(text(claims(org={'tenant': 'evil'})).encode())}.{SIGNATURE}", "Signature")
refuse("changed header", f"{b64(text({'alg': 'EdDSA', 'kid': 'ed', 'x': 1}).encode())}.{BODY}.{SIGNATURE}", "Signature")
refuse("ECDSA in DER form", es256(lambda der, r, s: der), "Signature")
refuse("ECDSA with r = 0", es256(lambda der, r, s: pair(0, s)), "Signature")
refuse("ECDSA with s = 0", es256(lambda der, r, s: pair(r, 0)), "Signature")
refuse("ECDSA with r = s = 0", es256(lambda der, r, s: pair(0, 0)), "Signature")
refuse("ECDSA with r = n", es256(lambda der, r, s: pair(ORDER, s)), "Signature")
refuse("ECDSA with a byte too much", es256(lambda der, r, s: pair(r, s) + b"\0"), "Signature")
refuse("ECDSA with a byte too few", es256(lambda der, r, s: pair(r, s)[:-1]), "Signature")
pkcs1 = raw({"alg": "PS256", "kid": "rsa"}, claims(), lambda m: RSA.sign(m, padding.PKCS1v15(), hashes.SHA256()))
refuse("PKCS #1 signature as PS256", pkcs1, "Signature")
sha384 = raw({"alg": "RS256", "kid": "rsa"}, claims(), lambda m: RSA.sign(m, padding.PKCS1v15(), hashes.SHA384()))
refuse("SHA-384 as RS256", sha384, "Signature")
for name, value in {
    "empty": "",
    "one part": HEAD,
    "two parts": f"{HEAD}.{BODY}",
    "four parts": f"{GOOD}.x",
    "trailing full stop": f"{GOOD}.",
    "leading full stop": f".{GOOD}",
    "two trailing full stops, six parts": f"{GOOD}...",
    "only full stops": "..",
    "padding": f"{HEAD}.{BODY}.{SIGNATURE}==",
    "padding of the header": f"{HEAD}=.{BODY}.{SIGNATURE}",
    "leading space": f" {GOOD}",
    "trailing space": f"{GOOD} ",
    "line break": f"{HEAD}.\n{BODY}.{SIGNATURE}",
    "trailing line break": f"{GOOD}\n",
    "NUL": f"{GOOD}\0",
    "base64 of the other alphabet": f"{HEAD}.{BODY}.{'+/' + SIGNATURE[2:]}",
    "signature that is not canonical": f"{HEAD}.{BODY}.{not_canonical(SIGNATURE)}",
    "a character that is not ASCII": f"{HEAD}.{BODY}.{SIGNATURE[:-1]}\u00e9",
    "full width letters": f"{HEAD}.{BODY}.{SIGNATURE[:-1]}\uff21",
    "header twice": raw(b'{"alg":"EdDSA","alg":"EdDSA","kid":"ed"}', claims()),
    "kid twice": raw(b'{"alg":"EdDSA","kid":"x","kid":"ed"}', claims()),
    "kid twice by escape": raw(b'{"alg":"EdDSA","kid":"ed","\\u006bid":"ed"}', claims()),
    "header is not JSON": raw(b"alg=EdDSA", claims()),
    "header is a list": raw(b'["EdDSA"]', claims()),
    "header is followed by more": raw(b'{"alg":"EdDSA","kid":"ed"}{}', claims()),
    "header is not UTF-8": raw(b'{"alg":"EdDSA","kid":"ed","x":"\xff"}', claims()),
    "header with a byte order mark": raw(b'\xef\xbb\xbf{"alg":"EdDSA","kid":"ed"}', claims()),
    "claims are not JSON": raw({"alg": "EdDSA", "kid": "ed"}, b"tenant=acme"),
    "claims are a list": ed([claims()]),
    "claims are empty": raw({"alg": "EdDSA", "kid": "ed"}, b""),
    "claims with trailing bytes": raw({"alg": "EdDSA", "kid": "ed"}, text(claims()).encode() + b"x"),
    "a claim twice": raw({"alg": "EdDSA", "kid": "ed"}, text(claims()).encode()[:-1] + b',"exp":9999999999}'),
    "the tenant twice": raw({"alg": "EdDSA", "kid": "ed"}, text(claims(org=None)).encode()[:-1] + b',"org":{"tenant":"a","tenant":"b"}}'),
    "claims nested too deeply": raw({"alg": "EdDSA", "kid": "ed"}, text(claims()).encode()[:-1] + b',"x":' + b"[" * 500 + b"]" * 500 + b"}"),
    "a number without an end": raw({"alg": "EdDSA", "kid": "ed"}, text(claims()).encode()[:-1] + b',"x":1e999}'),
}.items():
    refuse(name, value, "Malformed")
refuse("too long", GOOD + "A" * (16 * 1024), "TooLong")
refuse("five parts", f"{GOOD}.x.y", "Encrypted")
refuse("enc", ed(claims(), enc="A256GCM"), "Encrypted")
refuse("zip", ed(claims(), zip="DEF"), "Encrypted")
refuse("nested", ed(claims(), cty="JWT"), "Nested")
for value in [["exp"], [], ["b64"], "exp", None]:
    refuse(f"crit {value!r}", ed(claims(), crit=value), "Critical")
refuse("b64", ed(claims(), b64=False), "Critical")
for value in ["JOSE", "dpop+jwt", "logout+jwt", "secevent+jwt", "id_token", "", 1, None]:
    refuse(f"typ {value!r}", ed(claims(), typ=value), "Type")
refuse("expired", ed(claims(exp=NOW - 30)), "Expired")
refuse("expired long ago", ed(claims(exp=1)), "Expired")
refuse("not valid yet", ed(claims(nbf=NOW + 31)), "NotYetValid")
refuse("issued in the future", ed(claims(iat=NOW + 31)), "IssuedInFuture")
refuse("no exp", ed(claims(exp=None)), "Time")
for value in ["9999999999", True, [], {}, -1, 1e300, 1e18]:
    refuse(f"exp {value!r}", ed(claims(exp=value)), "Time")
refuse("exp null", ed(claims() | {"exp": None}), "Time")
refuse("nbf as text", ed(claims(nbf="0")), "Time")
refuse("no issuer", ed(claims(iss=None)), "Issuer")
for value in ["https://issuer.example/", "HTTPS://issuer.example", "", [ISSUER], 1]:
    refuse(f"issuer {value!r}", ed(claims(iss=value)), "Issuer")
refuse("no audience", ed(claims(aud=None)), "Audience")
for value in ["other", "", AUDIENCE + " ", AUDIENCE.upper(), [], ["other"], [AUDIENCE, 1], [[AUDIENCE]], {AUDIENCE: 1}, 1]:
    refuse(f"audience {value!r}", ed(claims(aud=value)), "Audience")
refuse("no tenant", ed(claims(org={})), "ClaimMissing")
refuse("no object around the tenant", ed(claims(org=None)), "ClaimMissing")
refuse("tenant in another type", ed(claims(org="acme")), "ClaimMissing")
refuse("tenant by a name with a full stop", ed(claims(org=None) | {"org.tenant": "acme"}), "ClaimMissing")
for value in [None, 1, True, ["acme"], {"acme": 1}]:
    refuse(f"tenant {value!r}", ed(claims(org={"tenant": value})), "ClaimType")
for name, value in {"empty": "", "too long": "t" * 256, "NUL": "a\0b", "line break": "a\nb", "DEL": "a\x7f"}.items():
    refuse(f"tenant {name}", ed(claims(org={"tenant": value})), "Tenant")

SHARED = [
    {"name": "valid", "token": hs(SECRET.encode(), "any"), "refusal": None},
    {"name": "no key id", "token": jwt.encode(claims(), SECRET, "HS256"), "refusal": None},
    {"name": "another secret", "token": hs(b"x" * 32, "any"), "refusal": "Signature"},
    {"name": "HS512", "token": hs(SECRET.encode(), "any", hashlib.sha512, "HS512"), "refusal": "Algorithm"},
    {"name": "SHA-512 as HS256", "token": hs(SECRET.encode(), "any", hashlib.sha512), "refusal": "Signature"},
    {"name": "half of the hash", "token": raw({"alg": "HS256"}, claims(), lambda m: hmac.new(SECRET.encode(), m, hashlib.sha256).digest()[:16]), "refusal": "Signature"},
    {"name": "EdDSA", "token": GOOD, "refusal": "Algorithm"},
    {"name": "none", "token": REFUSED[0]["token"], "refusal": "Algorithm"},
]


def certificate(common_names, alternatives=None):
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in common_names])
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject)
    builder = builder.public_key(ED.public_key()).serial_number(7)
    builder = builder.not_valid_before(datetime.datetime(2026, 1, 1))
    builder = builder.not_valid_after(datetime.datetime(2036, 1, 1))
    if alternatives is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    made = builder.sign(ED, None)
    return base64.b64encode(made.public_bytes(serialization.Encoding.DER)).decode()


CERTIFICATES = {
    "full": certificate(
        ["acme"],
        [
            x509.UniformResourceIdentifier("spiffe://example.org/acme"),
            x509.DNSName("Client.Acme.EXAMPLE"),
            x509.RFC822Name("ops@acme.example"),
        ],
    ),
    "two_common_names": certificate(["acme", "evil"]),
    "two_dns_names": certificate(["acme"], [x509.DNSName("a.example"), x509.DNSName("b.example")]),
    "no_names": certificate([]),
    "nul": certificate(["acme\0.evil"]),
    "other_script": certificate(["M\u00fcller \u5f20"]),
}

(HERE / "jwt.json").write_text(
    json.dumps(
        {
            "now": NOW,
            "issuer": ISSUER,
            "audience": AUDIENCE,
            "claim": "org.tenant",
            "tenant": "acme",
            "secret": SECRET,
            "jwks": JWKS,
            "accepted": [{"name": name, "token": value} for name, value in ACCEPTED.items()],
            "refused": REFUSED,
            "shared": SHARED,
        },
        indent=1,
    )
    + "\n"
)
(HERE / "certificates.json").write_text(json.dumps(CERTIFICATES, indent=1) + "\n")
