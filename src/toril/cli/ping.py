"""`toril ping`: a health check for containers. It imports nothing of the application."""

import http.client

import click

from toril.cli.arguments import DEFAULT, address
from toril.cli.exit import CommandFailed, say
from toril.cli.terminal import duration

__all__ = ["ping"]


@click.command()
@click.option("--http", type=address, envvar="TORIL_HTTP", metavar="HOST:PORT", help="[default: 127.0.0.1:8484]")
@click.option("--live", is_flag=True, help="Check whether it is alive rather than ready.")
@click.option("--timeout", type=duration, default="5", help="How long to wait for the answer. [default: 5s]")
def ping(*, http: tuple[str, int] | None, live: bool, timeout: float) -> None:
    """Check whether a worker on this machine is ready. Exits with 0 if it is, else with 1."""
    host, port = http or DEFAULT
    asked = "127.0.0.1" if host in ("0.0.0.0", "") else "::1" if host == "::" else host  # noqa: S104 - where it listens
    if (code := _asked(asked, port, "/livez" if live else "/readyz", timeout)) != 200:
        raise CommandFailed(f"the worker at {asked}:{port} is not {'alive' if live else 'ready'}: it answered {code}")
    say("alive" if live else "ready")


def _asked(host: str, port: int, path: str, timeout: float) -> int:
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise CommandFailed(f"no worker answers at {host}:{port}: {error}") from None
    finally:
        connection.close()
