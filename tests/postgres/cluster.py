#!/usr/bin/env python3
"""Runs a PostgreSQL cluster of its own for a test, for as long as the test lives.

  cluster.py

A new cluster in a temporary directory, by an unprivileged user where this is run by root, with fsync on; it listens on a
Unix socket and on 127.0.0.1, on a port that was free. The first line of output says where: "SOCKET_FOLDER PORT USER". Then
each line of input is an order, answered by one line ("ok", or what went wrong) when it is done:

  stop MODE    pg_ctl's modes: smart, fast, immediate (as after a crash)
  start        on the same data and port
  standby      makes a synchronous standby of the server and waits until it follows; answered by "ok PORT"
  failover     kill -9 of the server; its standby is promoted and takes its place
  small PLACE MIB  a disk of so many MiB of its own, for a tablespace "small" (PLACE data) or for the log (PLACE wal); the
               server is stopped for it and started again
  fill         takes all the room that is left on that disk; of one for the log, until the server has fallen
  free         gives it back, and starts the server if it has ended, as its service manager would

When the input ends, the cluster is stopped and its directory deleted. That is also what happens when the test is killed:
what looks after the cluster is nobody's child, in a session of its own.
"""

import ctypes
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

# Debian keeps the programs of each version apart, and off the path.
PROGRAMS = "/usr/lib/postgresql/15/bin"
STARTS_MAX = 5
# <linux/sched.h>
CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
SECONDS_TO_START = 60

SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_permissions = 0700
# As it is deployed: what is committed has been flushed.
fsync = on
synchronous_commit = on
full_page_writes = on
# Many small clusters run side by side on a machine of tests.
shared_buffers = 32MB
max_connections = 60
autovacuum_naptime = 5s
log_min_messages = warning
# Fixed, whatever the machine's is.
timezone = 'UTC'
lc_messages = 'C'
"""


def user():
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            pass
    sys.exit("cluster.py: run by root, and there is neither a user postgres nor nobody")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def own_mounts():
    """What this process and its children mount is theirs alone, and gone with them. Root needs nothing else; whoever is
    not root has the right in a user namespace, in which it stays who it is."""
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.geteuid(), os.getegid()
    if libc.unshare(CLONE_NEWNS | (0 if uid == 0 else CLONE_NEWUSER)) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    if uid != 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            pathlib.Path("/proc/self", name).write_text(text)
    ms_rec_private = 0x4000 | 0x40000
    if libc.mount(b"none", b"/", None, ms_rec_private, None) != 0:
        raise OSError(ctypes.get_errno(), "mount")
    return libc


class Cluster:
    def __init__(self):
        self.user = user()
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="sheaf-pg-"))
        self.process = None
        self.data = "data"
        self.port = 0
        # Of the standby, if there is one: its process, directory and port.
        self.standby = None
        self.num_standbys = 0
        # Both ports stay the same: a server is told of them once.
        self.other_port = 0
        # "data" or "wal", if there is a small disk.
        self.small = None
        if self.user:
            os.chown(self.directory, self.user.pw_uid, self.user.pw_gid)

    def run(self, *command):
        """A program of PostgreSQL, as its user."""
        options = {} if self.user is None else {
            "user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}
        return subprocess.Popen([f"{PROGRAMS}/{command[0]}", *command[1:]], cwd=self.directory,
                                stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT,
                                env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"}, **options)

    def create(self):
        self.log = open(self.directory / "log", "ab")
        code = self.run("initdb", "--pgdata", "data", "--auth=trust", "--username=sheaf", "--encoding=UTF8", "--locale=C",
                        "--no-sync").wait()
        if code != 0:
            raise RuntimeError(f"initdb failed: {self.said()}")
        with open(self.directory / "data/postgresql.conf", "a") as settings:
            settings.write(SETTINGS)
            settings.write(f"unix_socket_directories = '{self.directory}'\n")
        for _ in range(STARTS_MAX):
            # Somebody may take the port before the cluster does.
            self.port = free_port()
            if self.start() == "ok":
                return
        raise RuntimeError(f"the cluster did not start: {self.said()}")

    def start(self):
        self.process, answer = self.start_on(self.data, self.port)
        return answer

    def start_on(self, data, port):
        """The process, None if it has ended, and what to answer."""
        process = self.run("postgres", "-D", data, "-p", str(port))

        def takes_connections():
            # The last line of this file says so.
            try:
                said = (self.directory / data / "postmaster.pid").read_text().split("\n")[7].strip()
            except (OSError, IndexError):
                return False
            return said in ("ready", "standby")

        if not self.wait(lambda: process.poll() is not None or takes_connections()):
            return process, f"postgres does not take connections after {SECONDS_TO_START} seconds: {self.said()}"
        if process.poll() is not None:
            return None, f"postgres ended at once: {self.said()}"
        return process, "ok"

    def wait(self, is_so):
        end = time.monotonic() + SECONDS_TO_START
        while not is_so():
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True

    def ask(self, sql):
        """The answer of the server, as text."""
        return subprocess.run([f"{PROGRAMS}/psql", "-XAtq", "-h", self.directory, "-p", str(self.port), "-U", "sheaf", "-c",
                               sql, "postgres"], stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout.strip()

    def make_standby(self):
        self.num_standbys += 1
        data, port = f"data-{self.num_standbys}", self.other_port or free_port()
        copied = self.run("pg_basebackup", "-D", data, "-h", str(self.directory), "-p", str(self.port), "-U", "sheaf", "-R",
                          "-X", "stream", "-c", "fast", "--no-sync").wait()
        if copied != 0:
            return f"pg_basebackup failed: {self.said()}"
        process, answer = self.start_on(data, port)
        if answer != "ok":
            return answer
        self.standby = process, data, port
        # From here on a commit is acknowledged when both have it. The copy does not have this setting: it goes on alone.
        self.ask("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.ask("SELECT pg_reload_conf()")
        if not self.wait(lambda: self.ask("SELECT sync_state FROM pg_stat_replication") == "sync"):
            return f"the standby does not follow: {self.said()}"
        return f"ok {port}"

    def fail_over(self):
        self.process.kill()
        self.process.wait()
        self.other_port = self.port
        (self.process, self.data, self.port), self.standby = self.standby, None
        promoted = self.run("pg_ctl", "promote", "-D", self.data, "-w").wait()
        return "ok" if promoted == 0 else f"pg_ctl promote failed: {self.said()}"

    def make_small(self, place, mib):
        if place == "wal":
            # What is recycled would take more than that.
            for setting in ("max_wal_size", "min_wal_size"):
                self.ask(f"ALTER SYSTEM SET {setting} = '32MB'")
        self.stop("fast")
        disk = self.directory / "small"
        disk.mkdir()
        try:
            if own_mounts().mount(b"tmpfs", bytes(disk), b"tmpfs", 0, f"size={mib}m".encode()) != 0:
                raise OSError(ctypes.get_errno(), "mount")
        except OSError as error:
            return f"this user may not mount a small file system: {error}"
        if place == "wal":
            log = self.directory / self.data / "pg_wal"
            shutil.move(log, disk / "pg_wal")
            log.symlink_to(disk / "pg_wal")
        else:
            (disk / "data").mkdir()
        if self.user:
            for path in (disk, *disk.rglob("*")):
                os.chown(path, self.user.pw_uid, self.user.pw_gid)
        answer = self.start()
        if answer == "ok" and place == "data":
            self.ask(f"CREATE TABLESPACE small LOCATION '{disk}/data'")
        self.small = place
        return answer

    def fill(self):
        with open(self.directory / "small/filler", "ab", buffering=0) as filler:
            for size in (1 << 20, 4096):
                try:
                    while filler.write(b"x" * size) > 0:
                        pass
                except OSError:
                    pass
        if self.small == "data":
            return "ok"
        # Segments are used up until there is none to recover with either.
        def falls():
            self.ask("SELECT pg_switch_wal()")
            self.ask("CREATE TABLE anything (n bigint); DROP TABLE anything")
            return self.process.poll() is not None

        return "ok" if self.wait(falls) else f"the server does not fall: {self.said()}"

    def free(self):
        (self.directory / "small/filler").unlink()
        return "ok" if self.process.poll() is None else self.start()

    def stop(self, mode):
        if self.process is not None:
            self.process.send_signal({"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}[mode])
            self.process.wait()
            self.process = None
        return "ok"

    def said(self):
        return " | ".join((self.directory / "log").read_text(errors="replace").split("\n")[-8:])

    def remove(self):
        try:
            self.stop("immediate")
            if self.standby is not None:
                self.process = self.standby[0]
                self.stop("immediate")
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)


def serve():
    cluster = Cluster()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    try:
        try:
            cluster.create()
        except Exception as error:  # The test has no other way to learn why.
            print(f"error: {error}", flush=True)
            return
        print(cluster.directory, cluster.port, "sheaf", flush=True)
        for line in sys.stdin:
            order = line.split()
            answers = {"start": cluster.start, "stop": cluster.stop, "standby": cluster.make_standby,
                       "failover": cluster.fail_over, "small": cluster.make_small, "fill": cluster.fill,
                       "free": cluster.free}
            print(answers[order[0]](*order[1:]), flush=True)
    except (BrokenPipeError, SystemExit):
        pass
    finally:
        cluster.remove()


def main():
    # Whoever ends a test with all its children, as ctest does when its time is over, must not end what cleans up.
    if os.fork() != 0:
        os._exit(0)
    os.setsid()
    serve()
    # The reader may be gone, and what is buffered with it.
    os._exit(0)


if __name__ == "__main__":
    main()
