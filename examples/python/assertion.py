"""A storage service that verifies its caller, in Python: it accepts the signed assertion and ignores the other identity headers.

    pip install "pyjwt>=2.14" cryptography
    PORT=9000 JWKS_URL=http://127.0.0.1:8081/.well-known/jwks.json python3 assertion.py
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt

# Cached for ten minutes. An unknown kid, as after a key rotation, is fetched at most every 30 s: a caller may make up any.
keys = jwt.PyJWKClient(os.environ["JWKS_URL"], lifespan=600, timeout=5, cooldown_duration=30)

# The caller is not at fault when the keys cannot be fetched.
KEY_FAULTS = (jwt.PyJWKClientConnectionError, jwt.PyJWKSetError, OSError, ValueError)


def caller_of(headers):
    """Who a request speaks for; raises when the assertion is missing or not for this service."""
    values = headers.get_all("X-Authenticated-Assertion", [])
    assertion = values[0] if len(values) == 1 else ""
    if jwt.get_unverified_header(assertion).get("typ") != "upstream-assertion+jwt":
        raise jwt.InvalidTokenError("another kind of token")
    claims = jwt.decode(
        assertion,
        keys.get_signing_key_from_jwt(assertion),
        algorithms=["ES256"],
        issuer="storage-account-api",
        audience="storage-upstream",
        options={"require": ["iss", "aud", "sub", "client_id", "jti", "exp"]},
    )
    return {
        "account": claims["sub"],
        "accessKey": claims["client_id"],
        "tokenId": claims["jti"],
        "expiresAt": claims["exp"],
    }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # so that the sidecar can keep its connections

    def do_GET(self):
        try:
            status, body = 200, caller_of(self.headers)
        except KEY_FAULTS as fault:
            print("cannot fetch the keys:", fault, file=sys.stderr, flush=True)
            status, body = 503, {"code": "ServiceNotReady", "message": "The caller cannot be verified now. Retry later."}
        except jwt.PyJWTError:
            status, body = 403, {"code": "NotAuthenticated", "message": "This service wants a signed assertion."}
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Silent."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "9000"))), Handler)
    print(json.dumps({"msg": "listening", "port": server.server_address[1]}), flush=True)
    server.serve_forever()
