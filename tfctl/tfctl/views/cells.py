"""Pieces of text with a meaning: what the plain output and the live view are both made of."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tfctl.output import Look, Role


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    role: Role = Role.PLAIN
    is_joined: bool = False  # no gap before it


def pad(text: str, width: int, *, is_right: bool) -> str:
    return text.rjust(width) if is_right else text.ljust(width)


def paint_line(cells: Sequence[Cell], look: Look, *, gap: str) -> str:
    """One line of text. Blanks at its end are cut before anything is painted."""
    kept = list(cells)
    while kept and not kept[-1].text.strip():
        kept.pop()
    if kept:
        kept[-1] = replace(kept[-1], text=kept[-1].text.rstrip())
    return "".join(
        (gap if index and not cell.is_joined else "") + look.paint(cell.text, cell.role)
        for index, cell in enumerate(kept)
    )
