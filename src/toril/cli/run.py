"""`toril run`: run worker processes under a supervisor."""

import asyncio
import json
import sys
from importlib.util import find_spec
from typing import Any, Final

import click

from toril.cli.arguments import DEFAULT, address, complete_queues, queue_choice
from toril.cli.exit import CommandFailed
from toril.cli.terminal import duration, write_logs
from toril.supervisor import Listen, Supervisor, SupervisorOptions, SuspectPolicy, reload, serve

__all__ = ["run"]

_LEVELS: Final = ("debug", "info", "warning", "error")
_LOOPS: Final = ("asyncio", "uvloop")
_TYPED: Final = click.core.ParameterSource.COMMANDLINE
_APP: Final = "toril.app"
_UNITS: Final = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


def size(written: str) -> int:
    """Parse a size such as `500M` or `2G` into bytes."""
    digits, unit = written.lower().removesuffix("b"), ""
    if digits[-1:] in _UNITS and digits[-1:]:
        digits, unit = digits[:-1], digits[-1]
    if not (digits.isascii() and digits.isdecimal() and int(digits[:15]) > 0):
        raise click.BadParameter(f"invalid size {written!r}; expected a size such as 500M or 2G")
    return int(digits) * _UNITS[unit]


def _note_app(ctx: click.Context, param: click.Parameter, app: str | None) -> None:
    if ctx.get_parameter_source(param.name or "") is _TYPED:  # a variable is the argument's
        ctx.meta[_APP] = app


def _the_app(ctx: click.Context, param: click.Parameter, target: str | None) -> str:
    named: str | None = ctx.meta.get(_APP)
    if named is not None and ctx.get_parameter_source(param.name or "") is _TYPED:
        raise click.UsageError("the app is given twice: use MODULE:APP or --app, not both", ctx)
    if named is None and target is None:
        raise click.MissingParameter(ctx=ctx, param=param)
    return named or target or ""


@click.command(context_settings={"auto_envvar_prefix": "TORIL"})
@click.argument("target", metavar="MODULE:APP", envvar="TORIL_APP", required=False, callback=_the_app)
@click.option(
    "--app",
    "-A",
    metavar="MODULE:APP",
    is_eager=True,
    expose_value=False,
    callback=_note_app,
    help="The app to run. [default: $TORIL_APP]",
)
@click.option(
    "--processes", type=click.IntRange(1, 256), default=1, show_default=True, help="Number of worker processes."
)
@click.option(
    "--spares",
    type=click.IntRange(1, 256),
    default=4,
    show_default=True,
    help="Maximum number of spare processes for jobs whose worker died; each runs one such job, alone.",
)
@click.option(
    "-q",
    "--queue",
    "--queues",
    "chosen",
    type=queue_choice,
    multiple=True,
    metavar="NAME[:CONCURRENCY]",
    envvar="TORIL_QUEUES",
    shell_complete=complete_queues,
    help="Run only this queue, with this many jobs at once in each process; repeatable.",
)
@click.option("--grace", type=duration, default="10", help="How long running jobs get to finish. [default: 10s]")
@click.option(
    "--burst",
    is_flag=True,
    help="Exit when there are no jobs left to run; retries due within the grace period are waited for.",
)
@click.option("--name", help="Name of the worker processes, as NAME-PID. [default: worker-HOST-PID-…]")
@click.option(
    "--stall-interval",
    type=duration,
    help="How often to look for stalled jobs. [default: the lease; 15s for the queues of others]",
)
@click.option("--reload", is_flag=True, help="For development: restart when a source file of the app changes.")
@click.option(
    "--hang-timeout",
    type=duration,
    default="5m",
    show_default=True,
    help="Replace a process whose event loop is blocked for this long.",
)
@click.option("--max-jobs", type=click.IntRange(1), help="Replace a process after this many jobs.")
@click.option("--max-rss", type=size, metavar="SIZE", help="Replace a process that grows to this size, such as 500M.")
@click.option(
    "--http",
    type=address,
    metavar="HOST:PORT",
    help="Address to serve the probes and the API on. [default: 127.0.0.1:8484]",
)
@click.option("--no-http", is_flag=True, help="Do not serve HTTP.")
@click.option("--http-token", metavar="TOKEN", help="Token required by the API (prefer TORIL_HTTP_TOKEN).")
@click.option("--http-read-token", metavar="TOKEN", help="Read-only token for the API.")
@click.option("--http-proxy", multiple=True, metavar="ADDRESS", help="Trust X-Forwarded-* headers from this proxy.")
@click.option("--http-host", multiple=True, metavar="NAME", help="Another host name to accept requests for.")
@click.option("--http-origin", metavar="ORIGIN", help="Allow web pages from this origin to read /health.")
@click.option(
    "--unready-after",
    type=duration,
    default="10",
    help="Not ready once the store has been unavailable for this long. [default: 10s]",
)
@click.option(
    "--loop",
    type=click.Choice(_LOOPS),
    default="asyncio",
    show_default=True,
    help="Event loop of the worker processes.",
)
@click.option("--log-level", type=click.Choice(_LEVELS, case_sensitive=False), default="info", show_default=True)
def run(
    *,
    target: str,
    log_level: str,
    http_token: str | None,
    http_read_token: str | None,
    http_host: tuple[str, ...],
    http_proxy: tuple[str, ...],
    **given: Any,
) -> int:
    """Run the workers of an app, as in `toril run jobs:app`, until stopped by a signal.

    A supervisor keeps the worker processes running and their jobs' leases alive. On SIGTERM or Ctrl-C, workers claim no
    more jobs, and running jobs get the grace period to finish. Jobs that have not finished by then go back to their
    queues, and the exit code is 1. A second signal skips the wait, a third exits at once. Every option can also be set
    as TORIL_PROCESSES, TORIL_QUEUES, and so on. Without a token, anyone on this machine can view the dashboard, and a
    link printed at startup lets you make changes.
    """
    write_logs(log_level)
    options = _options(target, log_level, **given)
    supervisor = Supervisor(
        options, beside=[_server(options, http_token, http_read_token, http_host, http_proxy), reload]
    )
    code = asyncio.run(supervisor.run())
    if supervisor.failed is not None:
        if supervisor.failed.usage:
            raise click.UsageError(supervisor.failed.text, click.get_current_context())
        raise CommandFailed(supervisor.failed.text)
    return code


def _options(
    target: str,
    log_level: str,
    *,
    chosen: tuple[Any, ...],
    grace: float,
    burst: bool,
    http: tuple[str, int] | None,
    no_http: bool,
    http_origin: str | None,
    loop: str,
    name: str | None,
    stall_interval: float | None,
    **rest: Any,
) -> SupervisorOptions:
    if loop != "asyncio" and find_spec(loop) is None:
        raise click.UsageError(
            f"--loop {loop} needs the package {loop!r}: install it with  pip install 'toril[{loop}]'"
        )
    if http is not None and no_http and click.get_current_context().get_parameter_source("http") is _TYPED:
        raise click.UsageError("use --http or --no-http, not both")
    orders = {
        "target": target, "queues": chosen, "grace": grace, "burst": burst, "log_level": log_level, "loop": loop,
        "reload": rest["reload"], "processes": rest["processes"], "name": name, "stall_interval": stall_interval,
    }  # fmt: skip
    supervised = SuspectPolicy.LEAVE if rest["processes"] == 1 else SuspectPolicy.WHEN_IDLE
    usual = SuspectPolicy.HOLD_CLAIMS if burst else supervised
    command, spare = (_command(orders | {"suspects": suspects.name}) for suspects in (usual, SuspectPolicy.ONLY))
    listen = None if no_http else Listen(*(http or DEFAULT), asked_for=http is not None, origin=http_origin)
    return SupervisorOptions(
        command=command, spare=None if burst else spare, title=target, grace=grace, burst=burst, http=listen, **rest
    )


def _command(orders: dict[str, Any]) -> tuple[str, ...]:
    return (sys.executable, "-m", "toril.cli.worker_process", json.dumps(orders))


def _server(
    options: SupervisorOptions,
    token: str | None,
    read_token: str | None,
    hosts: tuple[str, ...],
    proxies: tuple[str, ...],
) -> Any:
    """The HTTP server: with the API if its packages are installed, else only the probes."""
    if options.http is None or not all(map(find_spec, ("starlette", "uvicorn", "jinja2"))):
        return serve
    from toril.web.server import access_by, serving  # noqa: PLC0415 - it needs the extra

    return serving(access_by(options.http.host, token, read_token), hosts, proxies)
