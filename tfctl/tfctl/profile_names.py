"""Completion of profile names on the command line."""

import typer


def complete(_ctx: typer.Context, incomplete: str) -> list[str]:
    """The names that begin so; no file is read for it."""
    from tokenflow.locations import profile_folders

    try:
        names = {path.stem for _, folder in profile_folders() for path in folder.glob("*.toml")}
    except OSError:
        return []
    return sorted(name for name in names if name.startswith(incomplete))
