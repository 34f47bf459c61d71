#!/usr/bin/env python3
"""A proxy as firms have one: CONNECT and plain requests, perhaps with a password. Every host is this machine.

  connect_proxy.py PORT_FILE LOG_FILE [USER:PASSWORD]

It listens on a free port of 127.0.0.1 and writes 127.0.0.1:PORT into PORT_FILE. LOG_FILE gets the first line of each request,
and "refused" if it had no or another password.
"""

import base64
import os
import pathlib
import re
import selectors
import socket
import socketserver
import sys
import threading

HEAD_BYTES_MAX = 64 << 10
PIECE_BYTES = 256 << 10


def pump(a, b):
    """What one says the other hears, until both are done."""
    with selectors.DefaultSelector() as ready:
        ready.register(a, selectors.EVENT_READ, b)
        ready.register(b, selectors.EVENT_READ, a)
        while ready.get_map():
            for key, _ in ready.select():
                try:
                    piece = key.fileobj.recv(PIECE_BYTES)
                    key.data.sendall(piece) if piece else key.data.shutdown(socket.SHUT_WR)
                except OSError:
                    return
                if not piece:
                    ready.unregister(key.fileobj)


class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        """A connection goes to one server: after its first request all bytes are passed on, but for what a head says of us."""
        try:
            self.pass_on()
        except OSError:
            pass

    def pass_on(self):
        head, rest = self.read_head()
        if head is None:
            return
        line = head.split("\r\n", 1)[0]
        if not self.server.lets_in(head):
            self.server.note(f"refused {line}")
            self.answer("407 Proxy Authentication Required", "proxy-authenticate: Basic realm=\"us\"\r\n")
            return
        self.server.note(line)
        method, target, _ = line.split(" ")
        with_scheme = re.match(r"http://([^/]+)(/.*)", target)
        authority = target if method == "CONNECT" else with_scheme.group(1)
        try:
            server = socket.create_connection(("127.0.0.1", int(authority.rpartition(":")[2])), timeout=5)
        except OSError:
            self.answer("502 Bad Gateway", "")
            return
        server.settimeout(None)
        with server:
            if method == "CONNECT":
                self.request.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                server.sendall(rest)
            else:
                # Later requests of the connection reach the server with their whole URL, which it takes.
                head = re.sub(r"(?im)^proxy-(?:authorization|connection):.*\r\n", "", head)
                server.sendall(head.replace(target, with_scheme.group(2), 1).encode("latin-1") + rest)
            pump(self.request, server)

    def read_head(self):
        data = b""
        while b"\r\n\r\n" not in data:
            piece = self.request.recv(65536) if len(data) < HEAD_BYTES_MAX else b""
            if not piece:
                return None, b""
            data += piece
        head, _, rest = data.partition(b"\r\n\r\n")
        return (head + b"\r\n\r\n").decode("latin-1"), rest

    def answer(self, status, fields):
        page = b"<html>a page of the proxy</html>"
        self.request.sendall(f"HTTP/1.1 {status}\r\ncontent-type: text/html\r\n{fields}content-length: {len(page)}\r\n"
                             "connection: close\r\n\r\n".encode() + page)


class Proxy(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 100

    def __init__(self, log, credentials=""):
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server_address[1]}"
        self._log, self._lock = log, threading.Lock()
        self._secret = base64.b64encode(credentials.encode()).decode() if credentials else ""

    def lets_in(self, head):
        shown = re.search(r"(?im)^proxy-authorization: *basic +(\S+)", head)
        return not self._secret or (shown is not None and shown.group(1) == self._secret)

    def note(self, line):
        with self._lock, open(self._log, "a") as log:
            log.write(line + "\n")


def main(argv):
    if len(argv) not in (3, 4):
        print(__doc__, file=sys.stderr)
        return 2
    with Proxy(argv[2], *argv[3:]) as proxy:
        # It appears in one step.
        part = pathlib.Path(argv[1] + ".part")
        part.write_text(proxy.address)
        os.replace(part, argv[1])
        proxy.serve_forever()


if __name__ == "__main__":
    sys.exit(main(sys.argv))
