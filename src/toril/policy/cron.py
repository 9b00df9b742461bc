"""The next time of a cron expression, in a time zone. No clock.

Five fields, or six with seconds first. Where clocks change, Debian's rule holds: a fixed time that is skipped comes as
soon as the clocks have moved on, and one that comes twice counts the first time; expressions that fire within every
hour follow the time that really passes.
"""

from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from toril.errors import InvalidOption, shown

__all__ = ["after", "check_cron"]


def check_cron(expression: object, tz: object) -> str:
    """The expression in its plain form, if it names a time that comes."""
    if not isinstance(expression, str):
        raise InvalidOption(f"cron must be a text of five or six fields, not {shown(expression)}")
    text = " ".join(expression.split())
    if after(text, _zone(tz), 0) is None:
        raise InvalidOption(f"cron {shown(expression)} names no time that ever comes")
    return text


def after(expression: str, tz: str | tzinfo, moment: int) -> int | None:
    """The first time after `moment`, both in ms; None if there is none within fifty years."""
    zone = _zone(tz) if isinstance(tz, str) else tz
    try:
        found = next(CronSim(expression, datetime.fromtimestamp(moment / 1000, zone)), None)
    except CronSimError as error:
        raise InvalidOption(
            f"cron must have five fields, or six with seconds first, and {shown(expression)} does not: "
            f"{str(error).lower()}"
        ) from None
    return None if found is None else round(found.timestamp() * 1000)


@lru_cache(maxsize=256)
def _zone(name: object) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)  # type: ignore[arg-type]
    except (ValueError, TypeError, OSError, LookupError):
        raise InvalidOption(f"tz must be the name of a time zone such as Europe/Berlin, not {shown(name)}") from None
