"""The keys of the view. Help, footer and palette are made from them."""

from collections.abc import Callable, Iterable

from textual.binding import Binding, BindingType

STEP_S, LEAP_S = 5.0, 60.0

VIEW_KEYS: tuple[BindingType, ...] = (
    Binding("q", "quit", "quit"),
    Binding("question_mark", "help", "help", key_display="?"),
    Binding("slash", "filter", "filter", key_display="/", tooltip="show requests that match only"),
    Binding("space", "freeze", "freeze", tooltip="the view stands still, reading goes on; again: live"),
    Binding("enter", "detail", "detail", key_display="Enter", tooltip="all of the request under the cursor"),
    Binding("p", "hold", "pause", tooltip="pause the request, or let it go on"),
    Binding("x", "abort", "abort", tooltip="end the request"),
    Binding("t", "tune", "tune", tooltip="tunables: see what another value would have done, then apply it"),
    Binding("y", "copy", "copy the id", show=False),
    Binding("a", "ended", "also those that have ended", show=False),
    Binding("left_square_bracket", f"step({-STEP_S})", "back", key_display="[", tooltip="5 s back in time"),
    Binding("right_square_bracket", f"step({STEP_S})", "forth", key_display="]", tooltip="5 s forth"),
    Binding("left_curly_bracket", f"step({-LEAP_S})", "a minute back", show=False),
    Binding("right_curly_bracket", f"step({LEAP_S})", "a minute forth", show=False),
    Binding("plus,equals_sign", "speed(2.0)", "faster", key_display="+", tooltip="play faster"),
    Binding("minus", "speed(0.5)", "slower", key_display="-", tooltip="play slower"),
    Binding("J,shift+down", "scroll_side(1)", "scroll the detail down", show=False),
    Binding("K,shift+up", "scroll_side(-1)", "scroll the detail up", show=False),
    Binding("1", "show_or_hide('trends')", "show or hide the trends", show=False),
    Binding("2", "show_or_hide('transfers')", "show or hide the transfers", show=False),
    Binding("3", "show_or_hide('gpus')", "show or hide the GPUs", show=False),
    Binding("S", "shot", "save an SVG screenshot", show=False),
    Binding("escape", "go_back", "close, clear the filter, go back to live", show=False),
)


def allowed(bindings: Iterable[BindingType], is_allowed: Callable[[str], bool]) -> list[Binding]:
    """Those whose action, by its name, is allowed now."""
    return [
        binding for binding in bindings if isinstance(binding, Binding) and is_allowed(binding.action.partition("(")[0])
    ]
