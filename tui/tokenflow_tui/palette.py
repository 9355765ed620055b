"""How roles look under a theme. Colour is never the only sign: a glyph or a word says the same."""

from collections.abc import Mapping

from rich.style import Style
from textual.theme import Theme

from tfctl.output import Role

DEFAULT_THEME = "textual-dark"
# Okabe and Ito's colours: told apart with every kind of colour blindness, and on both grounds.
THEMES = (
    Theme(
        name="colour-blind",
        primary="#56B4E9",
        secondary="#CC79A7",
        accent="#F0E442",
        success="#56B4E9",
        warning="#E69F00",
        error="#D55E00",
        foreground="#F2F2F2",
        background="#101010",
        surface="#1C1C1C",
        panel="#2A2A2A",
        dark=True,
    ),
    Theme(
        name="high-contrast",
        primary="#FFFFFF",
        secondary="#FFFFFF",
        accent="#FFFF00",
        success="#00FF66",
        warning="#FFFF00",
        error="#FF5555",
        foreground="#FFFFFF",
        background="#000000",
        surface="#000000",
        panel="#202020",
        dark=True,
    ),
)
_FALLBACK = {"success": "green", "warning": "yellow", "error": "red"}

Styles = Mapping[Role, Style]


def upon(styles: Styles, base: Style) -> Styles:
    """The roles' styles on a widget's own colours."""
    return {role: base + style for role, style in styles.items()}


def styles_of(variables: Mapping[str, str]) -> Styles:
    """From a theme's variables, as `App.theme_variables` has them."""

    def colour(name: str) -> str:
        # The theme's colour made legible on its own ground: the plain one is too pale on a light theme.
        return _hex(variables, f"text-{name}") or _hex(variables, name) or _FALLBACK[name]

    return {
        Role.PLAIN: Style(),
        Role.STRONG: Style(bold=True),
        Role.FAINT: Style(dim=True),
        Role.GOOD: Style(color=colour("success")),
        Role.WARN: Style(color=colour("warning")),
        Role.BAD: Style(color=colour("error"), bold=True),
    }


def cursor_of(variables: Mapping[str, str]) -> Style:
    """How the row under the cursor stands out; the roles' colours stay. Reversed under the terminal's own colours."""
    background = _hex(variables, "primary-muted")
    return Style(reverse=True) if background is None else Style(bgcolor=background, dim=False, bold=True)


def _hex(variables: Mapping[str, str], name: str) -> str | None:
    value = variables.get(name, "")
    return value if value.startswith("#") and len(value) == 7 else None


STYLES = styles_of({})
