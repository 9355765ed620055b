"""The manual pages, made from the commands themselves: `python -m tfctl.manpages docs/man` writes them."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tfctl.app import PROGRAM, build
from tfctl.options import GlobalOptions

if TYPE_CHECKING:
    from typer._click import Command, Context

_SEPARATOR = "-"


def pages() -> dict[str, str]:
    """Contents by file name: `tfctl.1`, `tfctl-ps.1`, `tfctl-profile-list.1`, ..."""
    return {f"{name.replace(' ', _SEPARATOR)}.1": page for name, page in _walk(build(), PROGRAM, None)}


def _walk(command: "Command", name: str, parent: "Context | None") -> Iterator[tuple[str, str]]:
    context = command.context_class(command, info_name=name.rpartition(" ")[2], parent=parent)
    children = [(child, _child(command, context, child)) for child in _names(command, context)]
    yield name, _page(command, context, name, children)
    for child, found in children:
        yield from _walk(found, f"{name} {child}", context)


def _names(command: "Command", context: "Context") -> list[str]:
    list_commands = getattr(command, "list_commands", None)
    return [] if list_commands is None else list(list_commands(context))


def _child(command: "Command", context: "Context", name: str) -> "Command":
    found: Command = command.get_command(context, name)  # type: ignore[attr-defined]
    return found


def _page(command: "Command", context: "Context", name: str, children: "list[tuple[str, Command]]") -> str:
    paragraphs = [" ".join(part.split()) for part in (command.help or "").split("\n\n") if part.strip()]
    summary = paragraphs[0].removesuffix(".") if paragraphs else name
    dashed = name.replace(" ", _SEPARATOR)
    lines = [
        f'.TH {_escaped(dashed.upper())} 1 "" "TokenFlow" "TokenFlow manual"',
        ".SH NAME",
        f"{_escaped(dashed)} \\- {_escaped(summary)}",
        ".SH SYNOPSIS",
        f".B {_escaped(name)}",
        _escaped(" ".join(command.collect_usage_pieces(context))),
        ".SH DESCRIPTION",
    ]
    for paragraph in paragraphs or [summary]:
        lines += [".PP", _escaped(paragraph)]
    if children:
        lines.append(".SH COMMANDS")
        for child, found in children:
            first = " ".join((found.help or "").split("\n\n")[0].split())
            lines += [".TP", f".BR {_escaped(f'{dashed}-{child}')} (1)", _escaped(first)]
    lines += _options(command, context)
    if command.epilog:
        lines += [".SH EXIT STATUS", _escaped(" ".join(command.epilog.split()).removeprefix("Exit codes: "))]
    if name != PROGRAM:
        lines += [".SH SEE ALSO", f".BR {PROGRAM} (1)"]
    return "\n".join(lines) + "\n"


def _options(command: "Command", context: "Context") -> list[str]:
    """Own options first, those that every command takes under a heading of their own."""
    sections: dict[str, list[str]] = {"OPTIONS": [], "GLOBAL OPTIONS": []}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None:
            continue
        is_global = parameter.name in GlobalOptions.__slots__ or parameter.name == "help"
        lines = [".TP", f".B {_escaped(record[0])}", _escaped(" ".join(record[1].split()) or "-")]
        sections["GLOBAL OPTIONS" if is_global else "OPTIONS"] += lines
    return [line for title, lines in sections.items() if lines for line in (f".SH {title}", *lines)]


def _escaped(text: str) -> str:
    """roff takes a backslash, a dash, and a dot or a quote at the start of a line, for its own."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def main(folder: Path) -> None:
    """Writes one file a command and removes those of commands that are no more."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = pages()
    for path in folder.glob("*.1"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
