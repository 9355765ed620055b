"""The four answers of a check, each made in one place so that only a pass goes without a next step."""

from tfctl.host_documents import Check, CheckState


def passed(name: str, message: str) -> Check:
    return Check(name=name, state=CheckState.PASS, message=message)


def warned(name: str, message: str, hint: str) -> Check:
    """It works, and may not for long."""
    return Check(name=name, state=CheckState.WARN, message=message, hint=hint)


def failed(name: str, message: str, hint: str) -> Check:
    return Check(name=name, state=CheckState.FAIL, message=message, hint=hint)


def skipped(name: str, message: str, hint: str) -> Check:
    """It could not be looked at, or does not apply here."""
    return Check(name=name, state=CheckState.SKIP, message=message, hint=hint)


def size(byte_count: float) -> str:
    """`12.5 GiB`"""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(byte_count) < 1024:
            return f"{byte_count:.0f} {unit}" if unit == "B" else f"{byte_count:.1f} {unit}"
        byte_count /= 1024
    return f"{byte_count:.1f} TiB"
