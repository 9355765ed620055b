"""The schedulers' sockets as they come: SGLang may serve a moment before the last of them is bound."""

import time
from pathlib import Path

from tokenflow import link

LOOK_S = 1.0


class SchedulerSockets:
    """Those of one name, such as `link.DELIVERY_SOCKET`, in the link's folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._known: set[int] = set()
        self._next_look_s = 0.0

    def new(self) -> dict[int, Path]:
        """By scheduler, those that have come since the last look; there is one look a second at most."""
        now_s = time.monotonic()
        if now_s < self._next_look_s:
            return {}
        self._next_look_s = now_s + LOOK_S
        bound = link.bound_sockets(self._folder, self._name)
        found = {index: path for index, path in bound.items() if index not in self._known}
        self._known.update(found)
        return found
