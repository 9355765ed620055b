"""Fail open: an exception of ours is counted, reported once, and never reaches SGLang."""

import logging

logger = logging.getLogger(__name__)

MAX_FAULTS = 20


class FaultGuard:
    """Counts our own exceptions. After `max_faults` of them the hooks hand everything straight to SGLang."""

    def __init__(self, max_faults: int = MAX_FAULTS) -> None:
        self.fault_count = 0
        self.last_fault: str | None = None
        self._max_faults = max_faults
        self._reported: set[str] = set()

    @property
    def is_tripped(self) -> bool:
        """True once the plugin has turned itself off in this process."""
        return self.fault_count >= self._max_faults

    def record(self, where: str, error: BaseException, rid: str | None = None) -> None:
        """Counts a fault; the same kind at the same place is logged once, with its traceback.

        `rid`: the request that it concerns, where it concerns one.
        """
        self.fault_count += 1
        self.last_fault = f"{where}: {type(error).__name__}: {error}"
        key = f"{where}:{type(error).__name__}"
        if key not in self._reported:
            self._reported.add(key)
            of = "" if rid is None else f" (rid {rid})"
            logger.error("tokenflow: fault in %s%s, stock serving goes on", where, of, exc_info=error)
        if self.fault_count == self._max_faults:
            logger.error("tokenflow: %d faults, the plugin turns itself off in this process", self.fault_count)
