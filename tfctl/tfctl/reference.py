"""The reference part of docs/cli.md: `python -m tfctl.reference docs/cli.md` brings it up to date."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tfctl.app import PROGRAM
from tfctl.commands import SUMMARIES

BEGIN = "<!-- reference: begin -->"
END = "<!-- reference: end -->"
_SUBCOMMANDS = {
    "engine": ("install", "show"),
    "profile": ("list", "show", "validate", "create", "diff", "apply", "measure"),
}


def help_text(command: str) -> str:
    """What `tfctl COMMAND --help` prints at 80 columns."""
    from tfctl.main import run

    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "80"
    try:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            code = run([*command.split(), "--help"])
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
    assert code == 0, f"{command} --help ended with {code}"
    return out.getvalue()


def commands() -> Iterator[str]:
    """Every command that has a help page of its own; the first is the program itself."""
    yield ""
    for name in SUMMARIES:
        yield name
        yield from (f"{name} {child}" for child in _SUBCOMMANDS.get(name, ()))


def render() -> str:
    """All help pages as Markdown."""
    sections = [f"### {PROGRAM} {command}".rstrip() + f"\n\n```\n{help_text(command)}```\n" for command in commands()]
    return "\n".join(sections)


def updated(page: str) -> str:
    """The page with its reference part made anew."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{render()}{END}{tail}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")
