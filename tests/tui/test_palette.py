"""Colours: legible on their own ground under every theme of ours and Textual's main ones."""

from pathlib import Path

import pytest
from textual.color import Color

from tfctl.output import Role
from tokenflow_tui.app import LiveView
from tokenflow_tui.palette import THEMES, cursor_of, styles_of


def luminance(colour: Color) -> float:
    """As WCAG 2 has it."""
    parts = [part / 255 for part in colour.rgb]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: Color, other: Color) -> float:
    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize(
    "name", [*(theme.name for theme in THEMES), "textual-dark", "textual-light", "nord", "gruvbox"]
)
def test_every_role_is_legible(name):
    theme = LiveView(Path("/nonexistent")).get_theme(name)
    variables = theme.to_color_system().generate()
    background = Color.parse(variables["background"])
    styles = styles_of(variables)
    for role in (Role.GOOD, Role.WARN, Role.BAD):
        colour = Color.parse(styles[role].color.name)
        assert contrast(colour, background) >= 3.0, (role, colour)
    assert cursor_of(variables).bgcolor is not None


def test_the_colour_blind_theme_tells_by_blue_and_orange():
    theme = next(theme for theme in THEMES if theme.name == "colour-blind")
    styles = styles_of(theme.to_color_system().generate())
    good, bad = (Color.parse(styles[role].color.name) for role in (Role.GOOD, Role.BAD))
    assert good.b > good.r  # blue
    assert bad.r > bad.b  # vermilion: no red-green pair


def test_a_terminals_own_colours_are_taken_where_a_theme_has_no_others():
    assert styles_of({"success": "ansi_green"})[Role.GOOD].color.name == "green"
    assert cursor_of({}).reverse
