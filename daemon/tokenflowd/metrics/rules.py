"""The alert rules as Prometheus reads them, and their planted faults as `promtool test rules` does."""

import json

from tokenflowd.metrics.alerts import ALERTS

RULES_FILE = "alerts.yml"
RUNBOOK = "docs/runbook.md"
_FIRES_AFTER = "30m"  # longer than any alert waits
_HEAD = "# Made by: python -m tokenflowd.metrics.generate docs\n"


def render_rules() -> str:
    """`docs/monitoring/alerts.yml`"""
    lines = [_HEAD + "groups:", "  - name: tokenflow", "    rules:"]
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {_quoted(alert.expr)}",
            f"        for: {alert.for_}",
            "        labels:",
            f"          severity: {alert.severity.value}",
            "        annotations:",
            f"          summary: {_quoted(alert.summary)}",
            f"          runbook: {RUNBOOK}#{alert.page}",
        ]
    return "\n".join(lines) + "\n"


def render_tests() -> str:
    """`docs/monitoring/alerts.test.yml`: each alert fires on its planted fault, and not before."""
    lines = [_HEAD + "rule_files:", f"  - {RULES_FILE}", "evaluation_interval: 1m", "tests:"]
    for alert in ALERTS:
        lines += [f"  - name: {alert.name}", "    interval: 1m", "    input_series:"]
        for series, values in alert.planted:
            lines += [f"      - series: {_quoted(series)}", f"        values: {_quoted(values)}"]
        firing = f'count(ALERTS{{alertname="{alert.name}",alertstate="firing"}})'
        lines += [
            "    promql_expr_test:",
            f"      - expr: {_quoted(firing)}",
            "        eval_time: 0m",
            "        exp_samples: []",
            f"      - expr: {_quoted(firing)}",
            f"        eval_time: {_FIRES_AFTER}",
            "        exp_samples:",
            '          - labels: "{}"',
            "            value: 1",
        ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A JSON string is a YAML string."""
    return json.dumps(text, ensure_ascii=False)
