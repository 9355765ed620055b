"""The options that every command takes, before or after its name, and the command classes that add them."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from typer._click import Command as ClickCommand
    from typer._click import Context as ClickContext
    from typer._click import HelpFormatter
    from typer._click.core import Parameter

HELP_NAMES = {"help_option_names": ["-h", "--help"]}
_META_KEY = "tfctl.globals"
_ENGINE_ARGS_KEY = "tfctl.engine_args"
_DEFAULT_WATCH_S = "2"


@dataclass(slots=True)
class GlobalOptions:
    """What the user asked of every command alike. `timeout_s` None: each command's own default."""

    as_json: bool = False
    socket: Path | None = None
    timeout_s: float | None = None
    quiet: bool = False
    show_version: bool = False


def seconds(value_s: float | None) -> float | None:
    """Callback of an option in seconds: zero or more, and a real number."""
    if value_s is not None and not 0 <= value_s < math.inf:
        raise typer.BadParameter(f"{value_s:g} is not a number of seconds from 0 up")
    return value_s


def time_limit(value_s: float | None) -> float | None:
    """Callback of `--timeout`: more than zero, as nothing answers in no time."""
    if value_s is not None and not 0 < value_s < math.inf:
        raise typer.BadParameter(f"{value_s:g} is not a number of seconds above 0")
    return value_s


def interval(value_s: float | None) -> float | None:
    """Callback of `--watch`: a tenth of a second or more."""
    if value_s is not None and not 0.1 <= value_s < math.inf:
        raise typer.BadParameter(f"{value_s:g} is not a number of seconds from 0.1 up")
    return value_s


# Options that several commands share.
Watch = Annotated[
    float | None,
    typer.Option(
        "--watch", metavar="[=S]", callback=interval, show_default=False, help="Show it again every S seconds (2)."
    ),
]
Drain = Annotated[
    float | None,
    typer.Option("--drain", metavar="S", callback=seconds, help="Let streams finish for up to S seconds."),
]
WaitForIt = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the engine serves.")]


def _shape(
    as_json: Annotated[bool | None, typer.Option("--json", help="Print JSON.", show_default=False)] = None,
    socket: Annotated[
        Path | None, typer.Option("--socket", metavar="PATH", help="The daemon's control socket.")
    ] = None,
    timeout_s: Annotated[
        float | None, typer.Option("--timeout", metavar="S", callback=time_limit, help="Give up after S seconds.")
    ] = None,
    quiet: Annotated[
        bool | None, typer.Option("--quiet", "-q", help="Print results and errors only.", show_default=False)
    ] = None,
    show_version: Annotated[
        bool | None, typer.Option("--version", help="Print the version and exit.", show_default=False)
    ] = None,
) -> None:
    """Only its signature is used: Typer makes the parameters of it."""


def _global_parameters() -> "list[Parameter]":
    app = typer.Typer(add_completion=False)
    app.command()(_shape)
    return typer.main.get_command(app).params


def global_options(ctx: "ClickContext") -> GlobalOptions:
    """The options as known so far: those before the command, then those after it."""
    found = ctx.meta.setdefault(_META_KEY, GlobalOptions())
    assert isinstance(found, GlobalOptions)
    return found


def engine_args(ctx: "ClickContext") -> list[str]:
    """What stood behind `--`."""
    return list(ctx.meta.get(_ENGINE_ARGS_KEY, []))


def _take(ctx: "ClickContext") -> None:
    options = global_options(ctx)
    for name in GlobalOptions.__slots__:
        value = ctx.params.pop(name, None)
        if value is not None:
            setattr(options, name, value)
    if options.show_version and not ctx.resilient_parsing:
        from tfctl.version import print_version

        print_version(as_json=options.as_json)
        raise typer.Exit(0)


def _write_options(command: "ClickCommand", ctx: "ClickContext", formatter: "HelpFormatter") -> None:
    """The command's own options first, the ones that every command takes under a heading of their own."""
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], "Global options": []}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is None:
            continue
        is_global = parameter.name in GlobalOptions.__slots__ or parameter.name == "help"
        own = "Options" if parameter.param_type_name == "option" else "Arguments"
        sections["Global options" if is_global else own].append(record)
    for title, records in sections.items():
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


class Command(TyperCommand):
    """A command that takes the global options too. Plain help: the same at every version of Rich."""

    def __init__(self, *args: Any, params: "list[Parameter] | None" = None, **kwargs: Any) -> None:
        kwargs["context_settings"] = {**HELP_NAMES, **(kwargs.get("context_settings") or {})}
        kwargs["rich_markup_mode"] = None
        super().__init__(*args, params=[*(params or []), *_global_parameters()], **kwargs)

    def parse_args(self, ctx: "ClickContext", args: list[str]) -> list[str]:
        # `--watch` may stand alone or carry a value (`--watch=5`); the parser knows only options that always do.
        args = [f"--watch={_DEFAULT_WATCH_S}" if arg == "--watch" else arg for arg in args]
        rest = super().parse_args(ctx, args)
        _take(ctx)
        return rest

    def format_options(self, ctx: "ClickContext", formatter: "HelpFormatter") -> None:
        _write_options(self, ctx, formatter)


class EngineArgsCommand(Command):
    """A command whose words behind `--` go to the engine."""

    def parse_args(self, ctx: "ClickContext", args: list[str]) -> list[str]:
        own, _, rest = _split(args)
        ctx.meta[_ENGINE_ARGS_KEY] = rest
        return super().parse_args(ctx, own)

    def collect_usage_pieces(self, ctx: "ClickContext") -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ENGINE ARGS]"]


def _split(args: list[str]) -> tuple[list[str], bool, list[str]]:
    if "--" not in args:
        return args, False, []
    at = args.index("--")
    return args[:at], True, args[at + 1 :]


class Group(TyperGroup):
    """A group of commands (`tfctl engine ...`) that takes the global options too."""

    def __init__(self, *, params: "list[Parameter] | None" = None, **kwargs: Any) -> None:
        kwargs["context_settings"] = {**HELP_NAMES, **(kwargs.get("context_settings") or {})}
        kwargs["rich_markup_mode"] = None
        super().__init__(params=[*(params or []), *_global_parameters()], **kwargs)

    def parse_args(self, ctx: "ClickContext", args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        _take(ctx)
        return rest

    def format_options(self, ctx: "ClickContext", formatter: "HelpFormatter") -> None:
        self.format_commands(ctx, formatter)
        _write_options(self, ctx, formatter)


def group(help_text: str) -> typer.Typer:
    """A Typer app for a command that has commands of its own."""
    app = typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True, help=help_text, cls=Group
    )

    # With a callback Typer keeps it a group even while it holds one command.
    app.callback()(_no_op)
    return app


def _no_op() -> None:
    return None
