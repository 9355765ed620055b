"""Charts, the series of a run and the command lines of the evaluation."""

import re
import sys
from pathlib import Path

import pytest

from tokenflow.sim.svg_chart import Axis, Line, line_chart, nice_ceiling

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.mark.parametrize(
    ("value", "ceiling"), [(0.0, 1.0), (0.03, 0.03), (1.0, 1.0), (1.1, 1.2), (50.4, 60.0), (99.0, 100.0), (7001, 8000)]
)
def test_an_axis_ends_at_a_round_number(value, ceiling):
    assert nice_ceiling(value) == pytest.approx(ceiling)


def test_a_line_is_cut_to_the_axes_and_broken_where_there_is_nothing():
    line = Line("load", "a", [(0.0, 1.0), (1.0, 500.0), (2.0, None), (3.0, 2.0)])
    drawn = line_chart("A <chart>", [line], Axis("s", 4.0), Axis("count", 10.0))
    strokes = re.findall(r'points="([^"]*)"', drawn)
    assert len(strokes) == 2
    heights = [float(point.split(",")[1]) for stroke in strokes for point in stroke.split()]
    assert min(heights) >= 24.0
    assert max(heights) <= 160.0
    assert "A &lt;chart&gt;" in drawn
    assert "A <chart>" not in drawn


def test_a_legend_stands_beside_the_title_and_above_all_lines():
    top = [(0.0, 10.0), (4.0, 10.0)]
    drawn = line_chart(
        "Demand and capacity",
        [Line("demand", "b", top), Line("capacity", "a", top)],
        Axis("s", 4.0),
        Axis("tok/s", 10.0),
    )
    keys = [float(y) for y in re.findall(r'<line class="[ab]"[^>]* y1="([\d.]+)"', drawn)]
    heights = [
        float(point.split(",")[1]) for stroke in re.findall(r'points="([^"]*)"', drawn) for point in stroke.split()
    ]
    assert len(keys) == 2
    assert max(keys) < min(heights)
    ends = [float(x) for x in re.findall(r'<text class="tick" x="([\d.]+)" y="14"', drawn)]
    assert ends == sorted(ends)
    assert 48 + 6.5 * len("Demand and capacity, tok/s") < ends[0]


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    try:
        from evaluation_setups import TABLES

        yield TABLES
    finally:
        sys.modules.pop("evaluation_setups", None)


def test_titles_of_the_evaluation_name_one_case_each(tables):
    assert len({table.key for table in tables}) == len(tables)
    for table in tables:
        titles = [case.title for case in table.cases]
        assert len(set(titles)) == len(titles)
        assert all(case.policies[0] == "tokenflow" for case in table.cases)


def test_every_command_line_of_the_evaluation_is_a_good_one(tables):
    """Read as `tfctl` reads it, its workload cut short; traces are left out, they are not part of the repository."""
    from typer.main import get_command

    from tfctl.commands.simulate import app
    from tfctl.simulate.options import SimulateOptions
    from tfctl.simulate.plan import simulate_plan
    from tokenflow.sim.settings import LoadOverlap

    command = get_command(app)
    for table in tables:
        for case in table.cases:
            if table.key == "traces":
                continue
            given = command.make_context("simulate", [*case.command[1:]]).params
            options = SimulateOptions(
                gpu=given["gpu"], model=given["model"], calibrate=None, policies=tuple(given["policies"]),
                arrivals=given["arrivals"], request_count=given["request_count"], input_tokens=given["input_tokens"],
                output_tokens=given["output_tokens"], max_tokens=given["max_tokens"], rates=given["rates"], speedup=1.0,
                kv_tokens=given["kv_tokens"],
                mem_fraction=given["mem_fraction"], host_gb=given["host_gb"], page_tokens=1,
                max_running=given["max_running"], chunk_tokens=given["chunk_tokens"],
                has_mixed_steps=given["has_mixed_steps"], link_gbs=given["link_gbs"],
                interference_ratio=None, overlap=LoadOverlap(given["overlap"]), step_overhead_ms=0.0,
                decision_pause_ms=0.0,
                tune=tuple(given["tune"] or ()), goodput=None, seeds=tuple(given["seeds"]), html=None,
                requests_out=None, events=None, has_timing=False,
            )  # fmt: skip
            plan = simulate_plan(options)
            requests = plan.setup.requests_of(options.seeds[0])
            assert len(requests) >= 60
            assert max(one.prompt_tokens + one.output_tokens for one in requests) < plan.setup.settings.kv_tokens
