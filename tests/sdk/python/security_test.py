"""Where a server is, and how a program proves who it is."""

import os
import subprocess
import time

import pytest

import sheaf
from conftest import Sheafd
from sheaf.calls import METHODS
from sheaf.security import Security, TokenFile


def security(environment=None, **arguments):
    names = ("address", "tls_ca", "tls_cert", "tls_key", "token_file", "insecure", "population")
    return Security.of(environment or {}, **{name: arguments.get(name) for name in names})


@pytest.fixture
def token(tmp_path):
    path = tmp_path / "program.token"
    path.write_text("sheaf_secret\n")
    path.chmod(0o600)
    return path


def test_arguments_go_before_variables_and_these_before_defaults(token):
    assert security().address == "127.0.0.1:7433" and security().population == "default"
    environment = {"SHEAF_SERVER": "a:1", "SHEAF_POPULATION": "p", "SHEAF_TLS_CA": "", "SHEAF_TOKEN_FILE": str(token),
                   "SHEAF_INSECURE": "true"}
    made = security(environment)
    assert (made.address, made.population, made.uses_tls, made.token_file) == ("a:1", "p", False, str(token))
    assert security(environment, address="localhost:2", insecure=False, population="q").population == "q"
    with pytest.raises(sheaf.InvalidArgument, match="SHEAF_INSECURE: '1' is neither true nor false"):
        security({"SHEAF_INSECURE": "1"})


def test_a_token_never_travels_in_the_clear_to_another_machine(token):
    with pytest.raises(sheaf.FailedPrecondition, match="refusing to send the token of .* to example.org:1 in the clear"):
        security(address="example.org:1", token_file=token)
    for address in ("127.0.0.1:1", "localhost:1", "[::1]:1", "unix:/run/s"):
        security(address=address, token_file=token)
    security(address="example.org:1", token_file=token, insecure=True)


def test_files_that_are_wrong_are_named_and_never_quoted(tmp_path, token):
    for content in ("", "two words", "x" * 1025, "\x01"):
        token.write_text(content)
        with pytest.raises(sheaf.InvalidArgument, match="program.token does not hold one token") as raised:
            security(token_file=token)
        assert not content or content not in str(raised.value)
    token.write_text("sheaf_secret")
    token.chmod(0o644)
    with pytest.raises(sheaf.FailedPrecondition, match="holds a secret, but other users may read or change it"):
        security(token_file=token)
    with pytest.raises(sheaf.NotFound, match="cannot read nowhere.pem"):
        security(tls_ca="nowhere.pem")
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(sheaf.InvalidArgument, match="ca.pem holds no certificates in PEM form"):
        security(tls_ca=tmp_path / "ca.pem")
    with pytest.raises(sheaf.InvalidArgument, match="a client certificate needs TLS"):
        security(tls_cert="a", tls_key="b")
    with pytest.raises(sheaf.InvalidArgument, match="needs its key"):
        security(tls_ca="system", tls_cert="a")


def test_a_token_that_is_replaced_is_shown_from_the_next_call_on(token):
    shown = TokenFile(str(token))
    assert shown.header() == "Bearer sheaf_secret"
    # Half written: the one before stays.
    token.write_text("")
    assert shown.header() == "Bearer sheaf_secret" and not shown.was_refused("Bearer sheaf_secret")
    token.write_text("sheaf_other")
    assert shown.header() == "Bearer sheaf_other" and shown.was_refused("Bearer sheaf_secret")
    assert TokenFile("").header() == ""


def make_certificate(directory):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-keyout", "server.key", "-out", "server.pem", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost,IP:127.0.0.1"], cwd=directory, check=True, capture_output=True)
    os.chmod(directory / "server.key", 0o600)


def test_over_https_a_renewed_certificate_is_taken_and_a_client_shows_its_own(tmp_path):
    make_certificate(tmp_path)
    files = {"tls_ca": tmp_path / "server.pem", "tls_cert": tmp_path / "server.pem", "tls_key": tmp_path / "server.key"}
    process = Sheafd(tmp_path, "--tls-cert", tmp_path / "server.pem", "--tls-key", tmp_path / "server.key",
                     "--tls-client-ca", tmp_path / "server.pem")
    try:
        with sheaf.connect(process.url("https"), tls_ca=files["tls_ca"], seconds=1) as unknown:
            with pytest.raises(sheaf.Unavailable, match="it may want a certificate of yours"):
                unknown.info()
        with sheaf.connect(process.url("https"), seconds=1) as unbelieving:
            with pytest.raises(sheaf.Unavailable, match="its certificate is not to be believed"):
                unbelieving.info()
        with sheaf.connect(process.url("https"), **files) as server:
            assert server.info().version
            process.kill()
            make_certificate(tmp_path)
            process.start()
            # It knows the new authority, and shows the new certificate, from the next look on.
            time.sleep(1.1)
            assert server.info().version
    finally:
        process.kill()


def test_a_certificate_that_is_renewed_is_taken_while_the_program_runs(tmp_path):
    make_certificate(tmp_path)
    process = Sheafd(tmp_path, "--tls-cert", tmp_path / "server.pem", "--tls-key", tmp_path / "server.key")
    try:
        with sheaf.connect(process.address, tls_ca=tmp_path / "server.pem") as server:
            assert server.info().version
            process.kill()
            # Half written: the one before stays.
            (tmp_path / "server.pem").write_text("-----BEGIN")
            time.sleep(1.1)
            server._connection.channel.channels.stub(METHODS[0])
            assert len(server._connection.channel.channels.all) == 1
            make_certificate(tmp_path)
            process.start()
            # It knows the new authority from the next look on.
            time.sleep(1.1)
            assert server.info().version and len(server._connection.channel.channels.all) == 2
    finally:
        process.kill()


@pytest.mark.parametrize("wire", ["grpc", "https"])
def test_a_server_with_tls_and_tokens_lets_its_programs_in(wire, tmp_path):
    def run(*command):
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    make_certificate(tmp_path)
    sheafd = os.path.join(os.environ["SHEAF_BINARIES"], "sheafd")
    token = tmp_path / "operator.token"
    token.write_text(run(sheafd, "--data-dir", tmp_path / "store", "--create-operator-token").split()[-1])
    token.chmod(0o600)
    process = Sheafd(tmp_path, "--tls-cert", tmp_path / "server.pem", "--tls-key", tmp_path / "server.key")
    try:
        address = process.address if wire == "grpc" else process.url("https")
        files = {"tls_ca": tmp_path / "server.pem"}
        with sheaf.connect(address, **files, token_file=token) as server:
            assert server.info().version
            # The file has another one by now, which nobody knows; then the right one again.
            right = token.read_text()
            token.write_text("sheaf_nobody")
            with pytest.raises(sheaf.Unauthenticated):
                server.info()
            token.write_text(right)
            assert server.info().version
        with sheaf.connect(address, **files) as server, pytest.raises(sheaf.Unauthenticated, match="without a token"):
            server.info()
        with sheaf.connect(address, token_file=token) as server, pytest.raises(sheaf.Unavailable):
            server.info()
    finally:
        process.kill()
