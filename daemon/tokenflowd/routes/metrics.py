"""The metrics, as at `metrics_listen`, for whoever may use the control socket."""

from aiohttp import web

from tokenflowd.metrics.endpoint import get_metrics

ROUTES = [web.get("/metrics", get_metrics)]
