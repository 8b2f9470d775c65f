"""Bytes and seconds as people read them."""

_UNITS = ("kB", "MB", "GB", "TB")


def size_text(size: float) -> str:
    """ "10.9 GB": decimal units, as the hub's pages and disks count them."""
    if size < 1000:
        return f"{int(size)} B"
    for unit in _UNITS:
        size /= 1000
        if size < 999.5 or unit == _UNITS[-1]:
            break
    return f"{size:.1f} {unit}" if size < 99.95 else f"{size:.0f} {unit}"


def time_text(seconds: float) -> str:
    """ "1 m 43 s"; hours without seconds."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} m"
