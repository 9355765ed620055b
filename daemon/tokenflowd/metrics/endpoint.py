"""`/metrics` over TCP, for Prometheus: nothing else is served there, and nothing can be changed."""

import structlog
from aiohttp import web

from tokenflowd import replies
from tokenflowd.connections import MOST_PER_ADDRESS, WatchedSite, address_of
from tokenflowd.metrics.exporter import MetricsExporter
from tokenflowd.metrics.listen import Listen

log = structlog.get_logger()
EXPORTER = web.AppKey("exporter", MetricsExporter)
_CLOSE_LIMIT_S = 1.0
_KEEP_ALIVE_S = 75.0  # longer than the usual interval between two scrapes


class MetricsEndpoint:
    """Closed until `open`. An address that cannot be had costs the daemon nothing but this: `problem` says why."""

    def __init__(self, listen: Listen | None) -> None:
        self._listen = listen
        self._runner: web.AppRunner | None = None
        self.url: str | None = None
        self.problem: str | None = None

    async def open(self, exporter: MetricsExporter) -> None:
        if self._listen is None:
            return
        app = web.Application(middlewares=[replies.errors_become_documents], client_max_size=1024)
        app[EXPORTER] = exporter
        app.router.add_get("/metrics", get_metrics)
        runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=_CLOSE_LIMIT_S,
            keepalive_timeout=_KEEP_ALIVE_S,
        )
        await runner.setup()
        try:
            # Whoever opens connections and asks nothing must not use up our descriptors.
            where = {"host": self._listen.host, "port": self._listen.port}
            await WatchedSite(runner, f"http://{self._listen}", address_of, MOST_PER_ADDRESS, **where).start()
        except OSError as error:
            await runner.cleanup()
            self.problem = f"nobody can scrape {self._listen}: {error.strerror or error}"
            log.warning("metrics_unavailable", problem=self.problem)
            return
        self._runner = runner
        self.url = f"http://{self._listen.at(runner.addresses[0][1])}/metrics"
        log.info("metrics_served", url=self.url)

    async def close(self) -> None:
        """Harmless when repeated."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()


async def get_metrics(request: web.Request) -> web.StreamResponse:
    """Prometheus' text format, or OpenMetrics where `Accept` asks for it."""
    body, content_type = await request.app[EXPORTER].scrape(request.headers.get("Accept", ""))
    return web.Response(body=body, headers={"Content-Type": content_type, "Cache-Control": "no-store"})
