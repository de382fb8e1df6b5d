"""[core] Format numbers, durations and times for people. None becomes a dash: unknown."""

from __future__ import annotations

from datetime import UTC, datetime

UNKNOWN = "–"
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_LARGE = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def count(number: float | None) -> str:
    """Format an exact count, thousands separated by a narrow space: 1 204 331."""
    return UNKNOWN if number is None else f"{number:,.0f}".replace(",", "\u202f")


def short(number: float | None) -> str:
    """Format with three digits and a unit: 950, 12.4k, 3.05M."""
    if number is None:
        return UNKNOWN
    for size, unit in _LARGE:
        if abs(number) >= size * 0.9995:
            scaled = number / size
            digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
            return f"{scaled:.{digits}f}{unit}"
    return f"{number:.0f}"


def size(number: float | None) -> str:
    """Format bytes: 950 B, 12.4 kB, 3.05 MB, 1.20 TB."""
    if number is None:
        return UNKNOWN
    if number >= 1e12:
        return f"{short(number / 1e12) if number >= 1e15 else f'{number / 1e12:.3g}'} TB"
    return f"{number:.0f} B" if number < 1_000 else f"{short(number)[:-1]} {short(number)[-1]}B"


def state_label(state: str) -> str:
    """Format a state: CATCHING_UP becomes "catching up"."""
    return state.replace("_", " ").lower()


def rate(per_second: float | None) -> str:
    """Format events per second; slow rates with one decimal."""
    if per_second is None or per_second == 0:
        return UNKNOWN if per_second is None else "0"
    return f"{per_second:.1f}" if per_second < 9.95 else short(per_second)


def seconds(value: float | None) -> str:
    """Format a duration: 0.42 s, 12 s, 3 min, 2.5 h, 4 d."""
    if value is None:
        return UNKNOWN
    if value < 0.005:
        return "0 s"
    if value < 9.95:
        return f"{value:.2f} s" if value < 0.995 else f"{value:.1f} s"
    if value < 120:
        return f"{value:.0f} s"
    if value < 7200:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h" if value < 172_800 else f"{value / 86_400:.0f} d"


def duration(ms: float | None) -> str:
    """Format how long something took, exactly enough to compare: 89 ms, 2.4 s, 6 min 12 s, 2 h 5 min.

    >>> duration(372_220), duration(59_999), duration(7_500_000)
    ('6 min 12 s', '1 min 0 s', '2 h 5 min')
    """
    if ms is None:
        return UNKNOWN
    if ms < 1_000:
        return f"{ms:.0f} ms"
    if ms < 59_950:
        return f"{ms / 1_000:.1f} s"
    whole = round(ms / 1_000)
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(ms / 60_000)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = round(ms / 3_600_000)
    return f"{hours // 24} d {hours % 24} h"


def bound(value: float | None, error_s: float | None) -> str:
    """Format the error bound that follows a lag; "or more" without an upper bound."""
    if value is None:
        return ""
    return "or more" if error_s is None else f"± {seconds(error_s)}"


def ago(at_ms: int | None, now_ms: int) -> str:
    """Format an age: just now, 12 s ago."""
    if at_ms is None:
        return "never"
    elapsed_s = (now_ms - at_ms) / 1000
    if elapsed_s < 1.5:
        return "just now"
    return f"{elapsed_s:.0f} s ago" if elapsed_s < 120 else f"{seconds(elapsed_s)} ago"


def clock(at_ms: int | None) -> str:
    """Format the time of day in UTC, with milliseconds."""
    if at_ms is None:
        return UNKNOWN
    at = _utc(at_ms)
    return _beyond(at_ms) if at is None else f"{at:%H:%M:%S}.{at_ms % 1000:03d}"


def moment(at_ms: int | None, now_ms: int) -> str:
    """Format a time, UTC: the time of day; on another day with the date, in another year only the date."""
    if at_ms is None:
        return UNKNOWN
    at, now = _utc(at_ms), _utc(now_ms)
    if at is None or now is None:
        return _beyond(at_ms)
    if at.date() == now.date():
        return f"{at:%H:%M:%S}"
    return f"{at.day} {_MONTHS[at.month - 1]} {at:%H:%M}" if at.year == now.year else f"{at:%Y-%m-%d}"


def _utc(at_ms: int) -> datetime | None:
    """Return the date and time; None when it is out of range.

    Producers may write any 64-bit timestamp, microseconds for example.
    """
    try:
        return datetime.fromtimestamp(at_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _beyond(at_ms: int) -> str:
    return f"{at_ms} ms"
