"""Moments, as callers have them (datetime), and as the core's clock does: int32 seconds since 2020-01-01 UTC.

The clock's zero lies near, so that it lasts from 1951-12-13 to 2088-01-19.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from dmem_jax.conversion import INT32
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, shown

Clock = Callable[[], datetime]
"""What gives the time; without a zone it is UTC."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ZERO = datetime(2020, 1, 1, tzinfo=UTC)


def utc(when: datetime, name: str = "time") -> datetime:
    """`when` in UTC, aware. A naive one is taken to be in UTC already, whatever zone the machine is in.

    Raises:
      ArgumentTypeError: not a datetime. ArgumentValueError: UTC has no such year. Both say `name`.
    """
    if not isinstance(when, datetime):
        raise ArgumentTypeError(f"{name}: expected a datetime, got {shown(when)}.")
    if when.utcoffset() is None:
        return when.replace(tzinfo=UTC)
    try:
        return when.astimezone(UTC)
    except OverflowError as error:
        raise ArgumentValueError(f"{name}: expected a moment of the years 1 .. 9999 UTC, got {when}.") from error


def seconds(when: datetime, name: str = "time") -> int:
    """Whole seconds from 2020-01-01 UTC to `when`, rounded down; an int32.

    Raises:
      ArgumentTypeError, ArgumentValueError: as `utc`; and a moment that the clock cannot hold.
    """
    whole = (utc(when, name) - _ZERO) // timedelta(seconds=1)
    if not INT32.min <= whole <= INT32.max:
        least, most = (f"{moment(edge):%Y-%m-%d}" for edge in (INT32.min, INT32.max))
        raise ArgumentValueError(f"{name}: expected a moment from {least} to {most}, got {when}.")
    return whole


def moment(seconds: int) -> datetime:
    """The moment so many seconds after 2020-01-01 UTC, aware, in UTC."""
    return _ZERO + timedelta(seconds=int(seconds))


def microseconds(when: datetime) -> int:
    """Since 1970-01-01 UTC, which loses nothing of a datetime."""
    return (utc(when) - _EPOCH) // timedelta(microseconds=1)


def from_microseconds(since: int) -> datetime:
    """The moment, aware, in UTC, that `microseconds` gave."""
    return _EPOCH + timedelta(microseconds=since)


def now_in_utc() -> datetime:
    """By this machine's clock."""
    return datetime.now(UTC)
