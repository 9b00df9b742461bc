"""`toril dashboard`: serve the dashboard and the HTTP API, without workers."""

import asyncio
import signal
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import click

from toril.cli.arguments import address
from toril.cli.escaping import plain
from toril.cli.exit import CommandFailed
from toril.cli.store_option import StoreOption, store_options
from toril.cli.terminal import write_logs
from toril.store.engine import redacted

if TYPE_CHECKING:
    from toril.web.access import Access
    from toril.web.server import HttpServer, StoreWatch

__all__ = ["dashboard"]

_NEEDED: Final = ("starlette", "uvicorn", "jinja2")


@click.command(context_settings={"auto_envvar_prefix": "TORIL"})
@click.argument("target", metavar="[MODULE:APP]", required=False)
@store_options
@click.option(
    "--http",
    type=address,
    metavar="HOST:PORT",
    default="127.0.0.1:8485",
    show_default=True,
    help="Address to serve on; port 0 picks a free port.",
)
@click.option("--http-token", metavar="TOKEN", help="Token required to sign in (prefer TORIL_HTTP_TOKEN).")
@click.option("--http-read-token", metavar="TOKEN", help="Read-only token.")
@click.option("--http-proxy", multiple=True, metavar="ADDRESS", help="Trust X-Forwarded-* headers from this proxy.")
@click.option("--http-host", multiple=True, metavar="NAME", help="Another host name to accept requests for.")
def dashboard(
    *,
    target: str | None,
    place: StoreOption,
    http: tuple[str, int],
    http_token: str | None,
    http_read_token: str | None,
    http_proxy: tuple[str, ...],
    http_host: tuple[str, ...],
) -> None:
    """Serve the dashboard for a store or an app until Ctrl-C.

    With an app, its code also validates the jobs that are added. Without a token, anyone on this machine can view the
    dashboard, and a link printed at startup lets you make changes.
    """
    if not all(map(find_spec, _NEEDED)):
        raise CommandFailed("the dashboard needs extra packages: install them with  pip install 'toril[web]'")
    from toril.runtime.clock import SYSTEM  # noqa: PLC0415 - what follows needs the extra
    from toril.web.access import Nobody  # noqa: PLC0415 - as above
    from toril.web.guard import GuardOptions  # noqa: PLC0415 - as above
    from toril.web.server import HttpServer, StoreWatch, access_by  # noqa: PLC0415 - as above
    from toril.web.site import Site  # noqa: PLC0415 - as above

    host, port = http
    place = place.of(target)
    access = access_by(host, http_token, http_read_token)
    if isinstance(access, Nobody):
        raise click.UsageError(f"{host} is reachable from other machines: set TORIL_HTTP_TOKEN to require a token")
    write_logs("warning")
    app = place.to_app()
    if app.services.in_memory:
        raise click.UsageError(
            "memory:// is private to one process, so this dashboard would be empty: use sqlite://, postgresql:// or "
            "redis://, or mount toril.web.site(app) in that process"
        )
    watch = StoreWatch(app, SYSTEM)
    terms = GuardOptions(access=access, hosts=[host, *http_host], proxies=http_proxy)
    asyncio.run(
        _serve(
            HttpServer(Site(app, terms, SYSTEM, probe=watch.probe), host, port),
            watch,
            access,
            host,
            plain(redacted(app.url)),
        )
    )


async def _serve(server: "HttpServer", watch: "StoreWatch", access: "Access", host: str, store: str) -> None:
    from toril.web.server import address_of  # noqa: PLC0415 - it needs the extra
    from toril.web.sign_in import SignInLink  # noqa: PLC0415 - as above

    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    url = address_of(host, await server.start())
    watching = asyncio.create_task(watch.watch())
    try:
        if isinstance(access, SignInLink):
            click.echo(f"Dashboard for {store}: {url} (Ctrl-C to stop)")
            access.start(url, _tell_link)
        else:
            click.echo(f"Dashboard for {store}: {url} (sign in with the token; Ctrl-C to stop)")
        await stopped.wait()
    finally:
        watching.cancel()
        await server.close()


def _tell_link(link: str) -> None:
    from toril.web.sign_in import CODE_MINUTES  # noqa: PLC0415 - it needs the extra

    click.echo(f"To make changes, sign in with this link (once, within {CODE_MINUTES} minutes): {link}", err=True)
