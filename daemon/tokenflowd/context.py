"""What the routes work with."""

from dataclasses import dataclass

from aiohttp import web

from tokenflowd.changes import Changes
from tokenflowd.ending import Ending
from tokenflowd.event_book import EventBook
from tokenflowd.guard import RoleNames
from tokenflowd.metrics.exporter import MetricsExporter
from tokenflowd.operations import Operations
from tokenflowd.paths import DaemonPaths
from tokenflowd.snapshot import Snapshots
from tokenflowd.streaming import SharedLines
from tokenflowd.supervisor import Supervisor
from tokenflowd.tuner import Tuner


@dataclass(frozen=True, slots=True)
class Context:
    supervisor: Supervisor
    operations: Operations
    snapshots: Snapshots
    changes: Changes
    lines: SharedLines
    events: EventBook
    ending: Ending
    exporter: MetricsExporter
    roles: RoleNames
    paths: DaemonPaths
    tuner: Tuner


CONTEXT = web.AppKey("context", Context)
