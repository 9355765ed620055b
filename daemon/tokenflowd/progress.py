"""SGLang's start-up log → what it is doing, and how far it is. Lines as SGLang 0.5.23 writes them."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """`ratio` is a share of the usual start-up time, not a promise."""

    text: str
    ratio: float


_MILESTONES: tuple[tuple[re.Pattern[str], Progress], ...] = (
    (re.compile(r"\bserver_args=|\bServerArgs\("), Progress("loading the tokenizer", 0.15)),
    (re.compile(r"Init parallel begin|Init torch distributed begin"), Progress("starting the scheduler", 0.35)),
    (re.compile(r"Load weight begin"), Progress("loading weights", 0.45)),
    (re.compile(r"Load weight end"), Progress("weights loaded", 0.65)),
    (re.compile(r"KV Cache is allocated"), Progress("allocating the KV pool", 0.75)),
    (re.compile(r"Memory pool end"), Progress("KV pool allocated", 0.8)),
    (re.compile(r"Capture .*graph begin", re.IGNORECASE), Progress("capturing CUDA graphs", 0.82)),
    (re.compile(r"Capture .*graph end", re.IGNORECASE), Progress("CUDA graphs captured", 0.88)),
    (re.compile(r"Uvicorn running on"), Progress("warming up", 0.9)),
    (re.compile(r"The server is fired up"), Progress("ready", 1.0)),
)
_SHARDS = re.compile(r"[Ll]oading .*shards:\s+(\d+)% Completed")
_SHARDS_FROM, _SHARDS_TO = 0.45, 0.65
LAUNCHED = Progress("launching the engine", 0.05)


class StartProgress:
    """Goes forward only: several processes write the same log, and their lines overtake each other."""

    def __init__(self) -> None:
        self.latest = LAUNCHED
        self.is_fired_up = False

    def feed(self, line: str) -> bool:
        """Takes in one line of the log; True when it moved on."""
        found = self._find(line)
        if found is None or found.ratio < self.latest.ratio or found == self.latest:
            return False
        self.latest = found
        self.is_fired_up = self.is_fired_up or found.ratio >= 1.0
        return True

    @staticmethod
    def _find(line: str) -> Progress | None:
        shards = _SHARDS.search(line)
        if shards is not None:
            share = int(shards.group(1)) / 100
            return Progress(f"loading weights {shards.group(1)}%", _SHARDS_FROM + share * (_SHARDS_TO - _SHARDS_FROM))
        return next((progress for pattern, progress in _MILESTONES if pattern.search(line)), None)
