"""A PostgreSQL server of our own: started when first needed, on a free loopback port, gone with the session."""

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from tests.servers import free_port

__all__ = ["Postgres", "emptied", "postgres"]

_names = count(1)


class Postgres:
    """One server in a folder of its own. It can be killed, and started again on the same data."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="toril-postgres-"))
        self.port = 0  # chosen by the first start, and kept: URLs name it
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:  # which the server refuses to be
            owner = next(user for user in pwd.getpwall() if user.pw_name in {"postgres", "nobody"})
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
            self._user = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        self._call(
            "initdb", "--pgdata", str(self.folder / "data"), "--username", "toril", "--auth", "trust", "--no-sync",
            "--encoding", "UTF8", "--no-locale",
        )  # fmt: skip

    def start(self) -> "Postgres":
        """Start it, and return when it answers. A port that another has taken meanwhile is tried again, or, as long as
        nobody knows it, left to them."""
        until, first = time.monotonic() + 120, self.port == 0
        while True:
            if first:
                self.port = free_port()
            self._process = self._launched()
            self._watcher = _watching(self._process.pid)
            while self._process.poll() is None:
                if self._answers():
                    return self
                assert time.monotonic() < until, self._log()
                time.sleep(0.05)
            self.stop()
            assert time.monotonic() < until, self._log()
            assert "Address already in use" in self._log(), self._log()
            time.sleep(0.05)

    def _launched(self) -> "subprocess.Popen[bytes]":
        options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
            "max_connections": 40,
        }
        with (self.folder / "log").open("wb") as log:
            return subprocess.Popen(
                [
                    _binary("postgres"), "-D", str(self.folder / "data"), "-p", str(self.port),
                    *(f"--{name}={value}" for name, value in options.items()),
                ],
                stdout=log, stderr=log, cwd=self.folder, **self._user,
            )  # fmt: skip

    def _answers(self) -> bool:
        """Whether this server does, and not another that has got the port."""
        try:
            with psycopg.connect(self.url(), connect_timeout=10) as connection:
                found = connection.execute("SHOW data_directory").fetchone()
        except psycopg.Error:
            return False
        return found == (str(self.folder / "data"),)

    def _log(self) -> str:
        return (self.folder / "log").read_text("utf-8", "replace")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://toril@127.0.0.1:{self.port}/{database}"

    def database(self) -> str:
        """The URL of a new, empty database."""
        name = f"test_{os.getpid()}_{next(_names)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT cuts all connections off; SIGQUIT is a crash, from which it recovers."""
        if self._watcher is not None and self._watcher.stdin is not None:
            self._watcher.kill()  # first: the server's number may soon be another's
            self._watcher.wait()
            self._watcher.stdin.close()
            self._watcher = None
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _call(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            [_binary(name), *arguments], capture_output=True, cwd=self.folder, check=False, **self._user
        )
        assert done.returncode == 0, done.stderr.decode("utf-8", "replace")


def _watching(server: int) -> "subprocess.Popen[bytes]":
    """Who ends the server when this process is gone, however it went: then nobody can write to the pipe any more."""
    return subprocess.Popen(
        ["/bin/sh", "-c", 'cat >/dev/null; kill -QUIT "$0"', str(server)],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


def _binary(name: str) -> str:
    found = shutil.which(name) or next(map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None)
    assert found is not None, f"{name} is not installed: run  make servers"
    return found


@cache
def postgres() -> Postgres:
    """The server that this test process shares. Tests use databases of their own in it."""
    server = Postgres()
    atexit.register(server.remove)
    return server.start()


@cache
def _shared() -> str:
    return postgres().database()


def emptied() -> str:
    """The URL of a database whose store, if there is one, is empty. One test at a time uses it."""
    with psycopg.connect(_shared(), autocommit=True) as connection:
        tables = connection.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = 'toril' AND c.relkind = 'r' AND c.relname <> 'facts' ORDER BY c.relname = 'workers'"
        ).fetchall()
        for (table,) in tables:
            connection.execute(f"DELETE FROM toril.{table}".encode())
        if tables:
            connection.execute("DELETE FROM toril.facts WHERE name NOT IN ('layout', 'functions')")
            connection.execute(
                "ALTER SEQUENCE toril.queues_key_seq RESTART; ALTER SEQUENCE toril.audit_seq_seq RESTART"
            )
    return _shared()
