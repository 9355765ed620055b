"""The screen as a picture."""

import re
from datetime import datetime
from pathlib import Path

from textual.app import App

_FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono"


def plain_svg(svg: str) -> str:
    """Textual's SVG without the web fonts that it names: a picture must not load anything."""
    return _FONT_FACE.sub("", svg).replace("Fira Code", _FONTS)


def take(app: App[None]) -> None:
    """Writes the screen into the folder in which the view was started, and tells what became of it."""
    folder = Path.cwd()
    try:
        path = save(app.export_screenshot(), folder)
    except OSError as error:
        app.notify(f"no screenshot: {error.strerror}: {folder}", severity="error", markup=False)
    else:
        app.notify(f"wrote {path}", markup=False)


def save(svg: str, folder: Path) -> Path:
    """Where it was written. Raises OSError."""
    path = folder / f"tfctl-top-{datetime.now():%Y%m%d-%H%M%S-%f}.svg"
    path.write_text(plain_svg(svg), encoding="utf-8")
    return path
