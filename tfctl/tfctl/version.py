"""What `tfctl --version` prints."""

import platform

from tfctl.documents import ClientVersionDocument
from tfctl.output import write_json, write_line
from tokenflow.version import __version__
from tokenflow.wire import API_VERSION


def print_version(*, as_json: bool) -> None:
    """The client's own version; `tfctl status` shows the daemon's."""
    if as_json:
        write_json(ClientVersionDocument(api=API_VERSION, python=platform.python_version()))
    else:
        write_line(f"tfctl {__version__}")
