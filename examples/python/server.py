"""A storage service behind the sidecar, in Python, without packages: says who the caller is.

    PORT=9000 python3 server.py

It believes the identity headers because nothing but the sidecar can reach it: it listens on loopback.
"""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote


def caller_of(headers):
    """Who a request speaks for; None where it did not come through the sidecar with a token."""

    def one(name):
        values = headers.get_all(name, [])
        # Percent-encoded UTF-8. Not unquote_plus: a + is a plus.
        return unquote(values[0], errors="strict") if len(values) == 1 else None

    caller = {
        "account": one("X-Authenticated-Account-Id"),
        "accessKey": one("X-Authenticated-Access-Key"),
        "tokenId": one("X-Authenticated-Token-Id"),
        "expiresAt": one("X-Authenticated-Token-Expires"),
    }
    if None in caller.values():
        return None
    return {**caller, "expiresAt": int(caller["expiresAt"])}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # so that the sidecar can keep its connections

    def do_GET(self):
        caller = caller_of(self.headers)
        status = 403 if caller is None else 200
        refusal = {"code": "NotAuthenticated", "message": "This service is reached through the sidecar."}
        body = json.dumps(caller or refusal).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        # The same id is in the sidecar's log and in the client's response. JSON keeps any name on one line.
        request_id = self.headers.get("X-Request-Id")
        print(json.dumps({"msg": "request", "requestId": request_id, "status": status, "caller": caller}), flush=True)

    def log_message(self, *_):
        """Silent: the lines above are the log."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "9000"))), Handler)
    print(json.dumps({"msg": "listening", "port": server.server_address[1]}), flush=True)
    server.serve_forever()
