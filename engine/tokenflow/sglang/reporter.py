"""From the HTTP process to the schedulers: what was delivered and what was acked."""

import asyncio
from pathlib import Path

import msgspec
import zmq

from tokenflow import link
from tokenflow.sglang.scheduler_sockets import SchedulerSockets

FLUSH_S = 0.02


class DeliveryReporter:
    """Merges running totals over short intervals, one delivery and one ack a stream. Loss is harmless: they are totals.

    Thousands of acks a second become fifty messages. Each scheduler gets all of them and takes those of its own
    requests: which one SGLang has given a request to is not known here. Called on the event loop.
    """

    def __init__(self, folder: Path) -> None:
        self._schedulers = SchedulerSockets(folder, link.DELIVERY_SOCKET)
        self._sockets: list[zmq.Socket[bytes]] = []
        self._deliveries: dict[str, link.Delivery] = {}
        self._acks: dict[str, link.Ack] = {}
        self._is_flush_planned = False

    def report(self, deliveries: list[link.Delivery]) -> None:
        """What the clients were sent."""
        for delivery in deliveries:
            self._deliveries[delivery.rid] = delivery
        self._plan_flush()

    def report_ack(self, ack: link.Ack) -> None:
        """The newest ack of a stream; what an earlier one of this interval said of rate and class holds."""
        before = self._acks.get(ack.rid)
        if before is not None:
            ack = msgspec.structs.replace(
                ack,
                rate_tok_s=before.rate_tok_s if ack.rate_tok_s is None else ack.rate_tok_s,
                reader_class=before.reader_class if ack.reader_class is None else ack.reader_class,
            )
        self._acks[ack.rid] = ack
        self._plan_flush()

    def flush(self) -> None:
        """Sends what waits."""
        self._is_flush_planned = False
        if not self._deliveries and not self._acks:
            return
        batch = link.DeliveryBatch(list(self._deliveries.values()), list(self._acks.values()))
        self._deliveries.clear()
        self._acks.clear()
        body = link.encode(batch)
        self._connect()
        for socket in self._sockets:
            try:
                socket.send(body, zmq.NOBLOCK)
            except zmq.Again:
                pass  # that scheduler is far behind; the next totals will tell it

    def _connect(self) -> None:
        """To schedulers that have come since."""
        for path in self._schedulers.new().values():
            socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUSH)
            socket.setsockopt(zmq.SNDHWM, 1000)
            socket.setsockopt(zmq.LINGER, 0)
            socket.connect(f"ipc://{path}")
            self._sockets.append(socket)

    def _plan_flush(self) -> None:
        if (self._deliveries or self._acks) and not self._is_flush_planned:
            self._is_flush_planned = True
            asyncio.get_running_loop().call_later(FLUSH_S, self.flush)
