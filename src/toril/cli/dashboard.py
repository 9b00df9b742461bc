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
    help="Where it is served; port 0 takes a free one.",
)
@click.option(
    "--http-token", metavar="TOKEN", help="What is asked for; better set as TORIL_HTTP_TOKEN than typed here."
)
@click.option("--http-read-token", metavar="TOKEN", help="One with which one can only look.")
@click.option("--http-proxy", multiple=True, metavar="ADDRESS", help="A proxy whose word on the client is taken.")
@click.option("--http-host", multiple=True, metavar="NAME", help="A name under which it is reached.")
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
    """Serve the dashboard of a store, or of an app, whose code then also checks what is added, until Ctrl-C.

    Without a token, everyone on this machine may look, and a link that is printed at the start lets one act.
    """
    if not all(map(find_spec, _NEEDED)):
        raise CommandFailed("the dashboard needs more packages: install them with  pip install 'toril[web]'")
    from toril.runtime.clock import SYSTEM  # noqa: PLC0415 - what follows needs the extra
    from toril.web.access import Nobody  # noqa: PLC0415 - as above
    from toril.web.guard import GuardOptions  # noqa: PLC0415 - as above
    from toril.web.server import HttpServer, StoreWatch, access_by  # noqa: PLC0415 - as above
    from toril.web.site import Site  # noqa: PLC0415 - as above

    host, port = http
    place = place.of(target)
    access = access_by(host, http_token, http_read_token)
    if isinstance(access, Nobody):
        raise click.UsageError(f"{host} can be reached from elsewhere: set TORIL_HTTP_TOKEN for those who may enter")
    write_logs("warning")
    app = place.to_app()
    if app.services.in_memory:
        raise click.UsageError(
            "memory:// belongs to one process, so this dashboard would show a store without jobs: use sqlite:// or "
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
            click.echo(f"The dashboard is at {url}, of {store} (Ctrl-C stops it)")
            access.start(url, _tell_link)
        else:
            click.echo(f"The dashboard is at {url}, of {store} (Ctrl-C stops it; sign in with the token)")
        await stopped.wait()
    finally:
        watching.cancel()
        await server.close()


def _tell_link(link: str) -> None:
    from toril.web.sign_in import CODE_MINUTES  # noqa: PLC0415 - it needs the extra

    click.echo(f"To act in it, sign in with this link (once, within {CODE_MINUTES} minutes): {link}", err=True)
