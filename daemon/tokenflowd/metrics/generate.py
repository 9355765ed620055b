"""Brings what is made from the tables up to date: `python -m tokenflowd.metrics.generate docs`."""

import sys
from pathlib import Path

from tokenflowd.metrics import alerts, dashboard, rules
from tokenflowd.metrics.table import GROUPS, PREFIX, Metric

BEGIN = "<!-- metrics: begin -->"
END = "<!-- metrics: end -->"
_SCRAPE = """# Made by: python -m tokenflowd.metrics.generate docs
# For a Prometheus on the same host; see docs/metrics.md for others.
scrape_configs:
  - job_name: {job}
    scrape_interval: 10s
    static_configs:
      - targets: ["127.0.0.1:9464"]
rule_files:
  - {rules}
"""


def metric_table() -> str:
    """The Markdown table of all metrics, then the alerts."""
    lines: list[str] = []
    for title, group in GROUPS.items():
        lines += [f"**{title}**", "", "| metric | kind | labels | meaning |", "|---|---|---|---|"]
        lines += [_row(metric) for metric in group]
        lines.append("")
    lines += ["**Alerts**", "", "| alert | severity | for | fires when |", "|---|---|---|---|"]
    lines += [
        f"| [`{alert.name}`](runbook.md#{alert.page}) | {alert.severity.value} | {alert.for_} | {alert.summary} |"
        for alert in alerts.ALERTS
    ]
    return "\n".join(lines) + "\n"


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    bounds = f" Buckets: {', '.join(f'{bound:g}' for bound in metric.bounds)}." if metric.bounds else ""
    return f"| `{PREFIX}{metric.name}` | {metric.kind.value} | {labels} | {metric.help}{bounds} |"


def updated(page: str) -> str:
    """docs/metrics.md with its table made anew."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{metric_table()}{END}{tail}"


def files() -> dict[str, str]:
    """Contents by path below `docs`."""
    return {
        f"monitoring/{rules.RULES_FILE}": rules.render_rules(),
        "monitoring/alerts.test.yml": rules.render_tests(),
        "monitoring/dashboard.json": dashboard.render(),
        "monitoring/prometheus.yml": _SCRAPE.format(job=alerts.SCRAPE_JOB, rules=rules.RULES_FILE),
    }


def main(docs: Path) -> None:
    page = docs / "metrics.md"
    page.write_text(updated(page.read_text(encoding="utf-8")), encoding="utf-8")
    for name, text in files().items():
        path = docs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
