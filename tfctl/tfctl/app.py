"""The root of the command tree. It knows the commands' names; their modules are imported when they are used."""

import importlib
from difflib import get_close_matches
from typing import TYPE_CHECKING

import typer

from tfctl.commands import SUMMARIES
from tfctl.options import Group

if TYPE_CHECKING:
    from typer._click import Command as ClickCommand
    from typer._click import Context as ClickContext
    from typer._click import HelpFormatter

PROGRAM = "tfctl"


class LazyGroup(Group):
    """Finds a command by importing `tfctl.commands.<name>` and building its `app`."""

    def list_commands(self, ctx: "ClickContext") -> list[str]:
        return list(SUMMARIES)

    def get_command(self, ctx: "ClickContext", cmd_name: str) -> "ClickCommand | None":
        if cmd_name not in SUMMARIES:
            return None
        if cmd_name not in self.commands:
            module = importlib.import_module(f"tfctl.commands.{cmd_name}")
            command = typer.main.get_command(module.app)
            command.name = cmd_name
            self.commands[cmd_name] = command
        return self.commands[cmd_name]

    def resolve_command(
        self, ctx: "ClickContext", args: list[str]
    ) -> "tuple[str | None, ClickCommand | None, list[str]]":
        name = args[0]
        if name not in SUMMARIES and not name.startswith("-"):
            close = get_close_matches(name, SUMMARIES, n=1, cutoff=0.7)
            ctx.fail(f"No such command '{name}'." + (f" Did you mean '{close[0]}'?" if close else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: "ClickContext", formatter: "HelpFormatter") -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))


def build() -> "ClickCommand":
    """The command tree of `tfctl`."""
    app = typer.Typer(
        cls=LazyGroup,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        help="Run and watch TokenFlow: an LLM engine whose streams share the GPU by how far their readers are behind.",
        epilog="Exit codes: 0 done, 1 failed, 2 usage, 3 not running, 4 unknown, 69 daemon or server unreachable, "
        "75 timed out, 77 permission denied, 78 invalid configuration.",
    )
    app.callback()(_root)
    return typer.main.get_command(app)


def _root() -> None:
    return None
