"""What the palette offers beside Textual's own commands: every key of ours, and every theme by its name."""

from collections.abc import Awaitable, Callable, Iterable

from textual.app import App, SystemCommand
from textual.binding import Binding

from tokenflow_tui.help import key_text


def palette_commands(app: App[None], bindings: Iterable[Binding]) -> Iterable[SystemCommand]:
    """`bindings`: those that are allowed now."""
    for binding in bindings:
        title = (binding.tooltip or binding.description).capitalize()
        yield SystemCommand(title, f"key {key_text(binding.key)}", _runner(app, binding.action))
    for name in sorted(app.available_themes):
        yield SystemCommand(
            f"Theme {name}", "these colours, until the view ends; for good: --theme", _dresser(app, name)
        )


def _runner(app: App[None], action: str) -> Callable[[], Awaitable[None]]:
    async def carry_out() -> None:
        await app.run_action(action)

    return carry_out


def _dresser(app: App[None], name: str) -> Callable[[], None]:
    def dress() -> None:
        app.theme = name

    return dress
