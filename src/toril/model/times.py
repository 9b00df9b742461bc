"""Points in time: stores keep milliseconds since 1970, programs read datetimes in UTC."""

from datetime import UTC, datetime, timedelta
from typing import Final, overload

__all__ = ["moment", "ms_of"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_FIRST: Final = -((_EPOCH - datetime.min.replace(tzinfo=UTC)) // _MS)
_LAST: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MS


@overload
def moment(ms: int) -> datetime: ...


@overload
def moment(ms: int | None) -> datetime | None: ...


def moment(ms: int | None) -> datetime | None:
    """A stored time as programs read it. One that no datetime can hold, as other programs may have written it, is the
    first or the last that there is."""
    return None if ms is None else _EPOCH + min(max(ms, _FIRST), _LAST) * _MS


@overload
def ms_of(at: datetime) -> int: ...


@overload
def ms_of(at: datetime | None) -> int | None: ...


def ms_of(at: datetime | None) -> int | None:
    """A time as stores keep it."""
    return None if at is None else round((at - _EPOCH) / _MS)
