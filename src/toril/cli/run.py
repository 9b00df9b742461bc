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
    """`500M`, `2G`: bytes."""
    digits, unit = written.lower().removesuffix("b"), ""
    if digits[-1:] in _UNITS and digits[-1:]:
        digits, unit = digits[:-1], digits[-1]
    if not (digits.isascii() and digits.isdecimal() and int(digits[:15]) > 0):
        raise click.BadParameter(f"{written!r} is not a size such as 500M or 2G")
    return int(digits) * _UNITS[unit]


def _note_app(ctx: click.Context, param: click.Parameter, app: str | None) -> None:
    if ctx.get_parameter_source(param.name or "") is _TYPED:  # a variable is the argument's
        ctx.meta[_APP] = app


def _the_app(ctx: click.Context, param: click.Parameter, target: str | None) -> str:
    named: str | None = ctx.meta.get(_APP)
    if named is not None and ctx.get_parameter_source(param.name or "") is _TYPED:
        raise click.UsageError("the app is named twice: give MODULE:APP, or --app", ctx)
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
    help="The app whose queues are worked. [default: $TORIL_APP]",
)
@click.option(
    "--processes", type=click.IntRange(1, 256), default=1, show_default=True, help="How many worker processes."
)
@click.option(
    "--spares",
    type=click.IntRange(1, 256),
    default=4,
    show_default=True,
    help="How many spare processes may be started for jobs whose worker died: each runs one of them, alone.",
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
    help="Work only this queue, with so many jobs at once in each process; can be given several times.",
)
@click.option("--grace", type=duration, default="10", help="How long running jobs get to end. [default: 10s]")
@click.option(
    "--burst",
    is_flag=True,
    help="End when there is nothing left to do; what is to be tried again within the grace is waited for.",
)
@click.option("--name", help="What worker processes are called: NAME-PID. [default: worker-HOST-PID-…]")
@click.option(
    "--stall-interval",
    type=duration,
    help="How often stalled jobs are looked for. [default: the lease; for queues of others 15s]",
)
@click.option("--reload", is_flag=True, help="For development: start anew when a source file of the app changes.")
@click.option(
    "--hang-timeout",
    type=duration,
    default="5m",
    show_default=True,
    help="A process whose loop stands still for so long is replaced.",
)
@click.option("--max-jobs", type=click.IntRange(1), help="Replace a process after so many jobs.")
@click.option(
    "--max-rss", type=size, metavar="SIZE", help="Replace a process that has grown to this size, such as 500M."
)
@click.option(
    "--http",
    type=address,
    metavar="HOST:PORT",
    help="Where the probes and the API are served. [default: 127.0.0.1:8484]",
)
@click.option("--no-http", is_flag=True, help="Serve no HTTP.")
@click.option(
    "--http-token", metavar="TOKEN", help="What the API asks for; better set as TORIL_HTTP_TOKEN than typed here."
)
@click.option("--http-read-token", metavar="TOKEN", help="One with which the API can only be read.")
@click.option("--http-proxy", multiple=True, metavar="ADDRESS", help="A proxy whose word on the client is taken.")
@click.option("--http-host", multiple=True, metavar="NAME", help="A name under which HTTP is reached.")
@click.option("--http-origin", metavar="ORIGIN", help="A web page's origin that may read /health.")
@click.option(
    "--unready-after", type=duration, default="10", help="Not ready once the store is away for so long. [default: 10s]"
)
@click.option(
    "--loop",
    type=click.Choice(_LOOPS),
    default="asyncio",
    show_default=True,
    help="The event loop of worker processes.",
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
    """Work the queues of an app, as in `toril run jobs:app`, until a signal says stop.

    A supervisor keeps the worker processes running and their jobs' leases alive. On SIGTERM or Ctrl-C nothing more is
    claimed, and running jobs may end. What has not ended after the grace goes back to its queue, and the exit code is
    1; a second signal does not wait, a third one ends at once. Every option can also be set as TORIL_PROCESSES,
    TORIL_QUEUES, and so on. Without a token, everyone on this machine may look at the dashboard, and a link that is
    printed at the start lets one act.
    """
    write_logs(log_level)
    plan = _plan(target, log_level, **given)
    supervisor = Supervisor(plan, beside=[_server(plan, http_token, http_read_token, http_host, http_proxy), reload])
    code = asyncio.run(supervisor.run())
    if supervisor.failed is not None:
        if supervisor.failed.usage:
            raise click.UsageError(supervisor.failed.text, click.get_current_context())
        raise CommandFailed(supervisor.failed.text)
    return code


def _plan(
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
        raise click.UsageError("--http and --no-http exclude each other")
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
    plan: SupervisorOptions, token: str | None, read_token: str | None, hosts: tuple[str, ...], proxies: tuple[str, ...]
) -> Any:
    """What serves HTTP: the probes, and, where what it needs is installed, the API too."""
    if plan.http is None or not all(map(find_spec, ("starlette", "uvicorn", "jinja2"))):
        return serve
    from toril.web.server import access_by, serving  # noqa: PLC0415 - it needs the extra

    return serving(access_by(plan.http.host, token, read_token), hosts, proxies)
