"""`wanted.json`: the engine that somebody has started and nobody has stopped, over reboots and crashes."""

import os
from pathlib import Path

import msgspec

WISH_VERSION = 1


class Wish(msgspec.Struct, kw_only=True):
    version: int = WISH_VERSION
    profile: str
    engine_args: list[str] = []


def write(path: Path, wish: Wish) -> None:
    """Raises OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(msgspec.json.encode(wish))
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def read(path: Path) -> Wish | None:
    """None without one, and for one that cannot be read or that a newer daemon has written."""
    try:
        wish = msgspec.json.decode(path.read_bytes(), type=Wish)
    except (OSError, msgspec.DecodeError):
        return None
    return wish if wish.version <= WISH_VERSION else None


def forget(path: Path) -> None:
    path.unlink(missing_ok=True)
