"""Copies between device and host: one queue a direction, each served in order."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from tokenflow.sim.performance import Link

_ROUNDING_S = 1e-9  # what is left of a copy and would take less is a rounding error


class Direction(StrEnum):
    D2H = "d2h"
    H2D = "h2d"


@dataclass(slots=True, eq=False)
class Job:
    """One copy. `on_done` is called when it has arrived."""

    direction: Direction
    byte_count: float
    on_done: Callable[[], None]
    is_awaited: bool  # somebody is served, or room is made, when it ends
    left_bytes: float
    fixed_left_s: float
    service_s: float = 0.0
    is_done: bool = False


class Transfers:
    """Fluid service: each queue's first job moves at its direction's bandwidth; h2d slows down while d2h runs."""

    def __init__(self, link: Link, on_copied: Callable[[Direction, float, float, float], None]) -> None:
        """`on_copied` hears of every copy: direction, time of its end, bytes, service time."""
        self._link = link
        self._on_copied = on_copied
        self._queues: dict[Direction, deque[Job]] = {Direction.D2H: deque(), Direction.H2D: deque()}
        self._now_s = 0.0
        self.total_bytes = {Direction.D2H: 0.0, Direction.H2D: 0.0}
        self.busy_s = 0.0  # time with at least one copy running

    def submit(self, direction: Direction, byte_count: float, on_done: Callable[[], None], *, is_awaited: bool) -> Job:
        """Queues a copy. Call `advance` up to now before."""
        assert byte_count >= 0.0
        job = Job(direction, byte_count, on_done, is_awaited, byte_count, self._link.fixed_s)
        self._queues[direction].append(job)
        self.total_bytes[direction] += byte_count
        return job

    @property
    def is_busy(self) -> bool:
        return bool(self._queues[Direction.D2H] or self._queues[Direction.H2D])

    def backlog_bytes(self, direction: Direction) -> float:
        """Bytes that are queued or on the way."""
        return sum(job.left_bytes for job in self._queues[direction])

    def advance(self, to_s: float) -> None:
        """Serves both queues up to `to_s`."""
        if not self.is_busy:
            self._now_s = max(self._now_s, to_s)
            return
        while self.is_busy and (end_s := self._next_end_s()) <= to_s:
            self._serve(end_s)
        self._serve(to_s)

    def run_until_done(self, jobs: list[Job]) -> float:
        """Serves until all of `jobs` are done; the time when they are."""
        while not all(job.is_done for job in jobs):
            self._serve(self._next_end_s())
        return self._now_s

    def run_dry(self) -> float:
        """Serves until nothing is queued; the time when it is."""
        while self.is_busy:
            self._serve(self._next_end_s())
        return self._now_s

    def next_awaited_s(self) -> float:
        """When the next awaited job may end at the earliest; inf without one. Never later than it really ends."""
        found_s = float("inf")
        for direction, queue in self._queues.items():
            ahead_s = self._now_s
            bandwidth = self._bytes_s(direction, is_alone=True)
            for job in queue:
                ahead_s += job.fixed_left_s + job.left_bytes / bandwidth
                if job.is_awaited:
                    found_s = min(found_s, ahead_s)
                    break
        return found_s

    def _bytes_s(self, direction: Direction, *, is_alone: bool) -> float:
        if direction is Direction.D2H:
            return self._link.d2h_bytes_s
        return self._link.h2d_bytes_s * (1.0 if is_alone else self._link.h2d_contention_ratio)

    def _heads(self) -> list[tuple[Job, float]]:
        d2h, h2d = self._queues[Direction.D2H], self._queues[Direction.H2D]
        heads = []
        if d2h:
            heads.append((d2h[0], self._bytes_s(Direction.D2H, is_alone=not h2d)))
        if h2d:
            heads.append((h2d[0], self._bytes_s(Direction.H2D, is_alone=not d2h)))
        return heads

    def _next_end_s(self) -> float:
        return min(self._now_s + job.fixed_left_s + job.left_bytes / rate for job, rate in self._heads())

    def _serve(self, to_s: float) -> None:
        """Up to the end of the first job to end, at most. Rates do not change on the way there."""
        elapsed_s = max(to_s - self._now_s, 0.0)
        self.busy_s += elapsed_s if self.is_busy else 0.0
        self._now_s = max(self._now_s, to_s)
        ended = []
        for job, rate in self._heads():
            job.service_s += elapsed_s
            fixed_s = min(job.fixed_left_s, elapsed_s)
            job.fixed_left_s -= fixed_s
            job.left_bytes = max(job.left_bytes - (elapsed_s - fixed_s) * rate, 0.0)
            if job.fixed_left_s <= _ROUNDING_S and job.left_bytes <= rate * _ROUNDING_S:
                ended.append(job)
        for job in ended:
            self._queues[job.direction].popleft()
            job.is_done = True
            self._on_copied(job.direction, self._now_s, job.byte_count, job.service_s)
            job.on_done()
