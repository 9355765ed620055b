"""Grafana's JSON of the panels: `docs/monitoring/dashboard.json`."""

import json
from typing import Any

from tokenflowd.metrics.panels import ROWS, Panel, Query

UID = "tokenflow"
_COLUMNS = 24
_PANEL_WIDTH, _PANEL_HEIGHT = 8, 8
_SELECTOR = '{job="$job",instance=~"$instance"}'


def expression(query: Query, selector: str = _SELECTOR) -> str:
    """The query's PromQL with the selector of job and instance put in."""
    return query.expr.replace("$s", selector).replace("$l", selector.strip("{}"))


def render() -> str:
    """The JSON that Grafana imports. The data source is asked for at import."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        head = {"type": "row", "title": title, "collapsed": False, "panels": []}
        panels.append(_place(head, len(panels), top, 0, _COLUMNS, 1))
        top += 1
        for index, panel in enumerate(row):
            line, column = divmod(index * _PANEL_WIDTH, _COLUMNS)
            at = top + line * _PANEL_HEIGHT
            panels.append(_place(_panel(panel), len(panels), at, column, _PANEL_WIDTH, _PANEL_HEIGHT))
        top += -(-len(row) * _PANEL_WIDTH // _COLUMNS) * _PANEL_HEIGHT
    document = {
        "__inputs": [{"name": "DS_PROMETHEUS", "label": "Prometheus", "type": "datasource", "pluginId": "prometheus"}],
        "uid": UID,
        "title": "TokenFlow",
        "tags": ["tokenflow"],
        "schemaVersion": 39,
        "timezone": "browser",
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                _variable("job", "label_values(tokenflow_build_info, job)", is_multiple=False),
                _variable("instance", 'label_values(tokenflow_build_info{job="$job"}, instance)', is_multiple=True),
            ]
        },
        "panels": panels,
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": {"type": "prometheus", "uid": "${DS_PROMETHEUS}"},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": expression(query), "legendFormat": query.legend}
            for index, query in enumerate(panel.queries)
        ],
    }


def _place(panel: dict[str, Any], number: int, top: int, left: int, width: int, height: int) -> dict[str, Any]:
    return {"id": number + 1, **panel, "gridPos": {"h": height, "w": width, "x": left, "y": top}}


def _variable(name: str, query: str, *, is_multiple: bool) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${DS_PROMETHEUS}"},
        "query": {"query": query, "refId": "A"},
        "refresh": 2,
        "includeAll": is_multiple,
        "multi": is_multiple,
        "current": {"text": "All", "value": "$__all"} if is_multiple else {},
    }
