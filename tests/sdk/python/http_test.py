"""The wire of HTTP: addresses, proxies, and what servers and proxies that are slow, wrong or hostile cost a program."""

import asyncio
import base64
import concurrent.futures
import contextlib
import os
import socket
import socketserver
import subprocess
import sys
import threading
import time

import pytest

import sheaf
import sheaf.aio
from conftest import Sheafd
from sheaf.address import parse_address
from sheaf.calls import GET_SERVER_INFO, Attempt, CallFailed
from sheaf.http_channel import HttpChannel
from sheaf.http_proxy import proxy_for
from sheaf.security import Security
from sheaf.v1 import inspection_service_pb2

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../e2e"))
from connect_proxy import Proxy  # noqa: E402
from security_test import make_certificate  # noqa: E402

REQUEST = inspection_service_pb2.GetServerInfoRequest()
EMPTY = b"HTTP/1.1 200 OK\r\ncontent-type: application/proto\r\ncontent-length: 0\r\n\r\n"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False), monkeypatch.delenv(name.upper(), raising=False)


class Script(socketserver.ThreadingTCPServer):
    """A server that does with each request what the test says: answer(handler, head)."""

    daemon_threads = True

    def __init__(self, answer):
        test = self
        self.heads, self.connections = [], 0

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                test.connections += 1
                with contextlib.suppress(OSError):
                    while head := self.read():
                        test.heads.append(head)
                        if answer(self, head) is False:
                            return

            def read(self):
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    line = self.rfile.readline()
                    if not line:
                        return ""
                    head += line
                fields = dict(line.lower().split(": ", 1) for line in head.decode().split("\r\n")[1:] if ": " in line)
                self.rfile.read(int(fields.get("content-length", "0")))
                return head.decode()

            def wait(self):
                """Until the client hangs up."""
                with contextlib.suppress(OSError):
                    self.rfile.read()
                return False

        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


def channel(url, **arguments):
    names = ("address", "tls_ca", "tls_cert", "tls_key", "token_file", "insecure", "population")
    return HttpChannel(Security.of({}, **{name: {"address": url, **arguments}.get(name) for name in names}))


def ask(url, seconds=10.0):
    with contextlib.closing(channel(url)) as wire:
        return wire.call(GET_SERVER_INFO, REQUEST, Attempt(seconds, ""))


def refusal(url, seconds=10.0):
    with pytest.raises(CallFailed) as raised:
        ask(url, seconds)
    return raised.value


def send(data, *, then_wait=False):
    def answer(handler, _):
        handler.wfile.write(data)
        return handler.wait() if then_wait else False

    return answer


def test_an_address_is_grpcs_unless_it_is_a_url():
    for text, url in {"http://edge": "http://edge:80", "HTTPS://Edge/": "https://edge:443", "https://edge:1/a/b/": "https://edge:1/a/b",
                      "http://[::1]:7": "http://[::1]:7"}.items():
        assert parse_address(text).url == url
    for text in ("edge:7433", "[::1]:7433", "http:7433", "unix:/run/s", "dns:///edge:1"):
        assert not parse_address(text).is_http and parse_address(text).target == text
    for text, says in {"nowhere": "no port", ":1": "no host", "edge:x": '"x" is no port', "edge:65536": "is no port",
                       "::1:1": "brackets", "htps://edge": "htps:// is neither", "http://edge:99999": "ort", "http://": "no host",
                       "https://edge?x": '"\\?"'}.items():
        with pytest.raises(sheaf.InvalidArgument, match=says):
            sheaf.connect(text)
    with pytest.raises(sheaf.InvalidArgument, match="a user or a password") as raised:
        sheaf.connect("https://me:secret@edge")
    assert "secret" not in str(raised.value)
    for text in ("127.0.0.1:1", "http://localhost", "https://[::1]:1", "unix:/run/s"):
        assert parse_address(text).is_loopback
    for text in ("127.example.org:1", "http://127.0.0.1.example.org", "192.0.2.1:1"):
        assert not parse_address(text).is_loopback


def test_a_token_goes_by_https_and_certificates_never_by_http(tmp_path):
    token = tmp_path / "t.token"
    token.write_text("sheaf_secret")
    token.chmod(0o600)
    with pytest.raises(sheaf.FailedPrecondition, match="in the clear, .*; use https://"):
        sheaf.connect("http://edge.invalid", token_file=token)
    for address, options in (("https://edge.invalid", {}), ("http://edge.invalid", {"insecure": True}), ("http://127.0.0.1:1", {})):
        sheaf.connect(address, token_file=token, **options).close()
    with pytest.raises(sheaf.InvalidArgument, match="http://edge is without TLS: write https://"):
        sheaf.connect("http://edge", tls_ca="system")


@pytest.mark.parametrize("entries, host, is_exempt", [
    ("*", "edge", True), ("EDGE", "edge", True), ("a, edge", "edge", True), ("dge", "edge", False), (".", "edge", False),
    (".example.org", "example.org", True), ("*.example.org", "a.example.org", True), ("example.org", "badexample.org", False),
    ("192.0.2.0/24", "192.0.2.8", True), ("192.0.2.0/25", "192.0.2.128", False), ("192.0.2.0/33", "192.0.2.0", False),
    ("10.0.0.0/8", "edge", False), ("2001:db8::/32", "[2001:db8:1::2]", True), ("[2001:db8::1]", "[2001:db8::1]", True)])
def test_no_proxy_is_what_cplusplus_clients_take_it_for(entries, host, is_exempt):
    """The rows are those of tests/sdk/server_address_test.cc."""
    found = proxy_for(parse_address(f"https://{host}"), {"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": entries})
    assert (found is None) == is_exempt


def test_the_environment_names_the_proxy():
    both = {"HTTP_PROXY": "http://plain:1", "https_proxy": "me:s%40crt@tls:2", "HTTPS_PROXY": "http://other:3", "NO_PROXY": ""}
    assert proxy_for(parse_address("http://edge"), both).name == "http://plain:1"
    found = proxy_for(parse_address("https://edge"), both)
    assert (found.host, found.port, found.name, found.variable) == ("tls", 2, "http://tls:2", "https_proxy")
    assert found.authorization == "Basic " + base64.b64encode(b"me:s@crt").decode()
    assert proxy_for(parse_address("edge:1"), both) is None and proxy_for(parse_address("http://127.0.0.1:1"), both) is None
    for wrong in ("ftp://proxy", "https://proxy", "http://proxy:x", "http://"):
        with pytest.raises(sheaf.InvalidArgument, match="ALL_PROXY is no proxy that this package can use"):
            proxy_for(parse_address("https://edge"), {"ALL_PROXY": wrong})


def test_a_call_is_a_post_of_connect_and_its_connection_is_kept():
    with Script(send(EMPTY, then_wait=False)) as closing, contextlib.closing(channel(closing.url)) as wire:
        # The server closes after each answer, without a word: no error comes of it.
        for _ in range(5):
            wire.call(GET_SERVER_INFO, REQUEST, Attempt(5, ""))
        assert closing.connections == 5

    def keep(handler, _):
        handler.wfile.write(EMPTY)

    with Script(keep) as server, contextlib.closing(channel(server.url + "/behind/")) as wire:
        for _ in range(5):
            wire.call(GET_SERVER_INFO, REQUEST, Attempt(5, "Bearer secret"))
        assert server.connections == 1
        head = server.heads[0].lower()
        assert head.startswith("post /behind/sheaf.v1.inspectionservice/getserverinfo http/1.1\r\n")
        for field in ("content-type: application/proto", "connect-protocol-version: 1", "connect-timeout-ms: 6000",
                      "authorization: bearer secret", "accept-encoding: identity", f"host: {server.url[7:]}"):
            assert f"\r\n{field}\r\n" in head, head


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/proto\r\n"


@pytest.mark.parametrize("sent, says", [
    (b"", "hung up without an answer"), (HEAD, "broke off|none of HTTP|cannot be reached"),
    (HEAD + b"\r\n", "does not say how long"), (HEAD + b"\r\nab", "does not say how long"),
    (HEAD + b"content-length: 100\r\n\r\nab", "none of HTTP|broke off"),
    (HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nab", "none of HTTP|broke off"),
    (b"SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP/1.1"), (b"\0\0\0\4\0\0\0\0\0", "does not speak HTTP/1.1"),
    (HEAD + b"x-a: b\r\n" * 200 + b"\r\n", "none of HTTP"), (HEAD + b"x: " + b"a" * 100_000, "none of HTTP")])
def test_an_answer_that_breaks_off_or_is_none_is_unavailable(sent, says):
    with Script(send(sent)) as server, pytest.raises(CallFailed, match=says) as raised:
        ask(server.url)
    assert isinstance(raised.value.error, sheaf.Unavailable) and server.url in str(raised.value)


@pytest.mark.parametrize("sent", [b"", b"HTT", HEAD[:20], HEAD + b"content-length: 100\r\n\r\nab"])
def test_a_server_that_answers_too_little_costs_no_more_than_the_calls_time(sent):
    begin = time.monotonic()
    with Script(send(sent, then_wait=True)) as server:
        assert isinstance(refusal(server.url, 0.2).error, sheaf.DeadlineExceeded)
    assert time.monotonic() - begin < 5


def test_a_byte_at_a_time_costs_no_more_either():
    def drip(handler, _):
        for byte in HEAD + b"x-a: " + b"a" * 50_000:
            handler.wfile.write(bytes([byte]))
            time.sleep(0.005)

    with Script(drip) as server:
        assert isinstance(refusal(server.url, 0.3).error, sheaf.DeadlineExceeded)


@pytest.mark.parametrize("head", [HEAD + b"\r\n", HEAD + b"content-length: 9999999999\r\n\r\n",
                                  HEAD + b"transfer-encoding: chunked\r\n\r\n7fffffff\r\n"])
def test_more_than_an_answer_may_have_is_not_taken(head):
    def endless(handler, _):
        handler.wfile.write(head)
        while True:
            handler.wfile.write(bytes(1 << 20))

    with Script(endless) as server, pytest.raises(CallFailed, match="too much for one call") as raised:
        ask(server.url)
    assert isinstance(raised.value.error, sheaf.ResourceExhausted)


@pytest.mark.parametrize("status, content_type, fields, body, kind, says, retry_after", [
    ("400 Bad Request", "application/json", "", '{"code":"failed_precondition","message":"it ended"}', sheaf.FailedPrecondition,
     "^it ended$", None),
    ("429 Too Many Requests", "application/json", "grpc-retry-pushback-ms: 250\r\nretry-after: 9\r\n",
     '{"code":"resource_exhausted","message":"full"}', sheaf.ResourceExhausted, "^full$", 0.25),
    ("503 Service Unavailable", "text/html", "retry-after: 2\r\n", "<html>", sheaf.Unavailable, "503 Service Unavailable", 2),
    ("502 Bad Gateway", "application/json", "", "[]", sheaf.Unavailable, "502 Bad Gateway", None),
    ("404 Not Found", "text/html", "", "<html>", sheaf.Unimplemented, "no Sheaf server is there", None),
    ("401 Unauthorized", "text/plain", "", "who\033[2J are you?", sheaf.Unauthenticated, r'\("who\?\[2J are you\?"\)', None),
    ("403 Forbidden", "text/html", "", "<html>", sheaf.PermissionDenied, "stands in front of it", None),
    ("302 Found", "text/html", "location: https://login\r\n", "", sheaf.Error, "sends callers to https://login", None),
    ("413 Content Too Large", "text/html", "", "", sheaf.Error, "8 MiB", None),
    ("200 OK", "text/html", "", "<html>", sheaf.Error, "login page", None),
    ("200 OK", "application/proto", "content-encoding: gzip\r\n", "x", sheaf.Internal, "gzip", None),
    ("200 OK", "application/proto", "", "\xff\xff", sheaf.Internal, "no message", None)])
def test_what_stands_in_place_of_a_server_is_named(status, content_type, fields, body, kind, says, retry_after):
    data = body.encode("latin-1")
    answer = f"HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\n{fields}content-length: {len(data)}\r\n\r\n".encode() + data
    with Script(send(answer)) as server, pytest.raises(CallFailed, match=says) as raised:
        ask(server.url)
    assert isinstance(raised.value.error, kind) and raised.value.retry_after == retry_after
    assert data != b"<html>" or "<html>" not in str(raised.value)


def test_an_answer_to_half_of_a_large_request_is_heard():
    error = b'{"code":"unauthenticated","message":"who are you?"}'

    def refuse(connection):
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\nconnection: close\r\n"
                           b"content-length: %d\r\n\r\n" % len(error) + error)
        while connection.recv(1 << 20):
            pass

    with socket.create_server(("127.0.0.1", 0)) as listener, concurrent.futures.ThreadPoolExecutor(1) as pool:
        done = pool.submit(lambda: refuse(listener.accept()[0]))
        request = inspection_service_pb2.GetServerInfoRequest()
        request.MergeFromString(b"\xfa\x3f" + b"\x80\x89\x7a" + bytes(2_000_000))
        with contextlib.closing(channel(f"http://127.0.0.1:{listener.getsockname()[1]}")) as wire:
            with pytest.raises(CallFailed, match="^who are you\\?$"):
                wire.call(GET_SERVER_INFO, request, Attempt(10, ""))
        done.result(10)


def test_a_call_that_was_begun_ends_when_it_is_cancelled_and_all_end_with_the_channel():
    ended = threading.Semaphore(0)

    def park(handler, _):
        handler.wait()
        ended.release()
        return False

    with Script(park) as server:
        wire = channel(server.url)
        begun = [wire.begin(GET_SERVER_INFO, REQUEST, Attempt(30, "")) for _ in range(3)]
        while len(server.heads) < 3:
            time.sleep(0.01)
        begun[0].cancel()
        with pytest.raises(CallFailed, match="given up"):
            begun[0].result()
        # The server sees it.
        assert ended.acquire(timeout=5)
        wire.close()
        for each in begun[1:]:
            with pytest.raises(CallFailed, match="given up"):
                each.result()

    async def program():
        async with sheaf.aio.connect(server.url) as waiting:
            call = asyncio.ensure_future(waiting.info())
            await asyncio.sleep(0.1)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    with Script(park) as server:
        begin = time.monotonic()
        asyncio.run(program())
        assert time.monotonic() - begin < 5


def test_many_threads_share_a_server(sheafd):
    with sheaf.connect(sheafd.url()) as server, concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert len({each.version for each in pool.map(lambda _: server.info(), range(200))}) == 1


def test_programs_go_through_the_proxy_of_the_environment(tmp_path, monkeypatch):
    """A proxy that wants a password leads to a server whose name nobody else knows."""
    make_certificate(tmp_path)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-keyout", "edge.key", "-out", "edge.pem", "-subj", "/CN=edge", "-addext", "subjectAltName=DNS:edge.invalid"],
                   cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "edge.key").chmod(0o600)
    log = tmp_path / "requests"
    log.touch()
    # Without tokens a server is for its own machine.
    made = subprocess.run([os.path.join(os.environ["SHEAF_BINARIES"], "sheafd"), "--data-dir", tmp_path / "store",
                           "--create-operator-token"], check=True, capture_output=True, text=True).stdout
    token = tmp_path / "operator.token"
    token.write_text(made.split()[-1])
    token.chmod(0o600)
    process = Sheafd(tmp_path, "--tls-cert", tmp_path / "edge.pem", "--tls-key", tmp_path / "edge.key")
    with Proxy(log, "me:s@crt") as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        try:
            url = process.url("https").replace("127.0.0.1", "edge.invalid")
            options = {"tls_ca": tmp_path / "edge.pem", "token_file": token, "seconds": 0.5}
            monkeypatch.setenv("HTTPS_PROXY", f"http://me:s%40crt@{proxy.address}")
            with sheaf.connect(url, **options) as server:
                assert server.info().version and server.info().version
            assert log.read_text() == f"CONNECT {url[8:]} HTTP/1.1\n"
            with sheaf.connect(url, token_file=token, seconds=0.5, tls_ca=tmp_path / "server.pem") as server:
                with pytest.raises(sheaf.Unavailable, match="its certificate is not to be believed"):
                    server.info()
            for proxy_url, says in ((f"http://me:wrong@{proxy.address}", "answered 407 .* in HTTPS_PROXY"),
                                    ("http://127.0.0.1:1", "the proxy http://127.0.0.1:1: Connection refused; check HTTPS_PROXY"),
                                    ("http://nowhere.invalid:1", "no host of the name of the proxy http://nowhere.invalid:1")):
                monkeypatch.setenv("HTTPS_PROXY", proxy_url)
                with sheaf.connect(url, **options) as server, pytest.raises(sheaf.Unavailable, match=says) as raised:
                    server.info()
                assert "wrong" not in str(raised.value)
            monkeypatch.setenv("NO_PROXY", ".invalid")
            with sheaf.connect(url, **options) as server, pytest.raises(sheaf.Unavailable, match="no host of this name: edge.invalid"):
                server.info()
            process.kill()
            monkeypatch.delenv("NO_PROXY")
            monkeypatch.setenv("HTTPS_PROXY", f"http://me:s%40crt@{proxy.address}")
            with sheaf.connect(url, **options) as server, pytest.raises(sheaf.Unavailable, match="answered 502 Bad Gateway"):
                server.info()
        finally:
            process.kill()
            proxy.shutdown()


def test_without_tls_the_proxy_passes_the_calls_themselves(tmp_path, monkeypatch):
    log = tmp_path / "requests"
    log.touch()
    with Script(send(EMPTY, then_wait=True)) as server, Proxy(log, "me:secret") as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        monkeypatch.setenv("HTTP_PROXY", f"http://me:secret@{proxy.address}")
        url = server.url.replace("127.0.0.1", "edge.invalid")
        ask(url)
        assert log.read_text() == f"POST {url}/sheaf.v1.InspectionService/GetServerInfo HTTP/1.1\n"
        assert "proxy-authorization" not in server.heads[0].lower()
        monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.address}")
        failed = refusal(url)
        assert isinstance(failed.error, sheaf.Unavailable) and "407 Proxy Authentication Required" in str(failed)
        proxy.shutdown()


@pytest.mark.parametrize("scheme, says", [("http", "does not speak HTTP/1.1"), ("https", "TLS failed")])
def test_the_port_of_grpc_is_named(sheafd, scheme, says):
    failed = refusal(f"{scheme}://{sheafd.address}")
    assert isinstance(failed.error, sheaf.Unavailable) and says in str(failed) and "HOST:PORT without" in str(failed)
