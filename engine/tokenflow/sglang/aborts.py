"""Ends what is made for a client that has gone: at once, by exact id, and looked after until it has ended."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from tokenflow.sglang.faults import FaultGuard

logger = logging.getLogger(__name__)

RETRY_S = (1.0, 2.0, 4.0, 8.0)  # waits before it is sent again


class Aborter:
    """Sends SGLang's own aborts, of which it waits two seconds with by itself. Used on the event loop only."""

    def __init__(self, guard: FaultGuard, retry_s: tuple[float, ...] = RETRY_S) -> None:
        self._guard = guard
        self._retry_s = retry_s

    def abort(self, manager: Any, rids: Iterable[str]) -> None:
        """`manager` is SGLang's tokenizer manager. Requests that have ended already are passed over."""
        for rid in rids:
            try:
                state = manager.rid_to_state.get(rid)
                if state is not None and not state.finished:
                    self._send(manager, rid, state, 0)
            except Exception as error:  # noqa: BLE001 - fail open: SGLang's own abort comes after two seconds
                self._guard.record("abort", error, rid)

    def _send(self, manager: Any, rid: str, state: Any, try_count: int) -> None:
        if any(other != rid and other.startswith(rid) for other in manager.rid_to_state):
            return  # the scheduler aborts by prefix: this would end somebody else's request as well
        manager.abort_request(rid)
        if try_count < len(self._retry_s):
            asyncio.get_running_loop().call_later(
                self._retry_s[try_count], self._verify, manager, rid, state, try_count + 1
            )
        else:
            logger.warning("tokenflow: rid %s has not ended although it was aborted %d times", rid, try_count + 1)

    def _verify(self, manager: Any, rid: str, state: Any, try_count: int) -> None:
        try:
            if manager.rid_to_state.get(rid) is state and not state.finished:
                # An abort that overtakes its request finds nothing to end, and SGLang sends each only once.
                state.abort_sent = False
                self._send(manager, rid, state, try_count)
        except Exception as error:  # noqa: BLE001
            self._guard.record("abort", error, rid)
