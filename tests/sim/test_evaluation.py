"""How the tables of docs/evaluation.md are made: what is run, what is kept, and what is said of it."""

import re
from dataclasses import replace

import pytest

import evaluation_runs
from evaluate import PAGE, between, note_of_age
from evaluation_runs import RunStore, run_all, units_of
from evaluation_setups import TABLES, Case, Table
from evaluation_summary import render_summary
from evaluation_tables import render_table

STOCK_AND_OURS = ("tokenflow", "fcfs", "chunked", "andes")


def run_of(policy, seed=1, *, demand=0.5, p99_s=1.0, effective=100.0, raw=200.0, stall_s=0.0, qoe=0.9):
    return {
        "policy": policy, "seed": seed, "demand_ratio_max": demand, "ttft_s": {"mean": p99_s / 2, "p99": p99_s},
        "raw_tok_s": raw, "effective_tok_s": effective, "effective_tok_s_author": effective, "qoe_mean": qoe,
        "stall_s_total": stall_s, "max_idle_s_p99": 0.0, "preemption_count": 0, "recompute_count": 0,
        "makespan_s": 10.0,
    }  # fmt: skip


@pytest.fixture
def table():
    cases = [Case("one", ("--arrivals", "burst:9"), ("tokenflow", "fcfs"), seeds=(1, 2))]
    return Table("small", "Small", "Of a test.", cases, is_comparison=True)


@pytest.fixture
def ran(monkeypatch):
    """The units that were run, instead of being simulated."""
    names = []

    def simulated(unit):
        names.append(unit.name)
        return run_of(unit.policy, unit.seed, effective=300.0 if unit.policy == "tokenflow" else 100.0), 2.0, ""

    monkeypatch.setattr(evaluation_runs, "simulated", simulated)
    return names


def test_each_policy_and_seed_is_a_run_and_none_is_run_twice(tmp_path, table, ran):
    said = []
    units = units_of(table)
    assert [(unit.policy, unit.seed) for unit in units] == [
        ("tokenflow", 1), ("tokenflow", 2), ("fcfs", 1), ("fcfs", 2)
    ]  # fmt: skip
    assert run_all(units[:3], RunStore(tmp_path), 2, said.append) == []
    assert len(ran) == 3
    assert run_all(units, RunStore(tmp_path), 2, said.append) == []
    assert sorted(ran) == sorted(unit.name for unit in units)
    assert "3 of 4 runs are there already" in said[4]
    assert [unit.seed for unit in units_of(table, seed_count=1)] == [1, 1]


def test_options_of_ours_are_not_given_to_the_baselines(table):
    ours, _, theirs, _ = units_of(table)
    assert ours.command == [
        "simulate",
        "--arrivals",
        "burst:9",
        "--mixed-steps",
        "--policy",
        "tokenflow",
        "--seed",
        "1",
    ]
    assert theirs.command == ["simulate", "--arrivals", "burst:9", "--policy", "fcfs", "--seed", "1"]


def test_an_interruption_keeps_what_has_ended(tmp_path, table, ran, monkeypatch):
    def interrupted(text):
        if text.startswith("2/"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all(units_of(table), RunStore(tmp_path), 1, interrupted)
    kept = [unit for unit in units_of(table) if RunStore(tmp_path).get(unit)]
    assert len(kept) == 2
    assert not list(tmp_path.glob("*.part"))


def test_a_run_that_fails_is_named_and_tried_again(tmp_path, table, monkeypatch):
    monkeypatch.setattr(evaluation_runs, "simulated", lambda unit: (None, 1.0, "exit code 1: no such file"))
    said = []
    failed = run_all(units_of(table)[:1], RunStore(tmp_path), 1, said.append)
    assert failed == ["small: one: tokenflow, seed 1"]
    assert "FAILED: exit code 1: no such file" in said[-1]
    assert RunStore(tmp_path).get(units_of(table)[0]) is None


def test_a_changed_policy_makes_ours_anew_and_leaves_the_baselines(tmp_path, table, ran, monkeypatch):
    codes = {True: "ours", False: "theirs"}
    monkeypatch.setattr(evaluation_runs, "code_of", lambda is_ours: codes[is_ours])
    run_all(units_of(table), RunStore(tmp_path), 1, lambda text: None)
    codes[True] = "changed"
    ran.clear()
    run_all(units_of(table), RunStore(tmp_path), 1, lambda text: None)
    assert ran == ["small: one: tokenflow, seed 1", "small: one: tokenflow, seed 2"]


def test_code_that_changes_under_a_run_keeps_nothing_of_it(tmp_path, table, ran, monkeypatch):
    store = RunStore(tmp_path)
    monkeypatch.setattr(evaluation_runs, "code_of", lambda is_ours: "another")
    said = []
    assert len(run_all(units_of(table)[:1], store, 1, said.append)) == 1
    assert "the code was changed while it ran" in said[-1]


def test_baselines_do_not_depend_on_what_decides_for_ours():
    first = evaluation_runs._FIRST_MODULES
    theirs = {path.name for path in evaluation_runs._files(first)}
    ours = {path.name for path in evaluation_runs._files((*first, evaluation_runs._POLICY_ITSELF))}
    assert {"andes.py", "engine.py", "view.py", "qoe.py", "azure.py"} <= theirs
    assert ours - theirs >= {"planner.py", "overload.py", "victims.py", "writeahead.py", "paper.py"}
    assert evaluation_runs.code_of(True) != evaluation_runs.code_of(False)


def test_a_table_has_the_command_line_that_gives_it(table):
    runs = [run_of("tokenflow", effective=300.0), run_of("fcfs")]
    text = render_table(table, lambda case: runs)
    assert "tfctl simulate --arrivals burst:9 --mixed-steps --policy tokenflow --policy fcfs --seed 1\n" in text
    assert "| one | 0.50 | tokenflow |" in text
    assert "| 3.00 x | 1.00 x |" in text
    assert render_table(table, lambda case: []) == ""


def test_only_seeds_that_all_have_are_compared(table):
    runs = [run_of("tokenflow", 1, effective=300.0), run_of("fcfs", 1), run_of("fcfs", 2, effective=900.0)]
    assert "| 3.00 x | 1.00 x |" in render_table(table, lambda case: runs)
    assert "x |" not in render_table(table, lambda case: [run_of("tokenflow", 1), run_of("fcfs", 2)])


def summary(**ours):
    """Of one burst and one Poisson set-up with the same figures."""
    by_policy = {
        "tokenflow": {"p99_s": 0.1, "effective": 200.0, "qoe": 0.95, **ours},
        "fcfs": {"p99_s": 4.0},
        "chunked": {"p99_s": 3.0, "stall_s": 40.0},
        "andes": {"p99_s": 0.2, "stall_s": 90.0, "qoe": 0.94},
    }
    demand = ours.get("demand", 0.5)
    runs = [run_of(policy, **{**figures, "demand": demand}) for policy, figures in by_policy.items()]
    cases = [Case("(a)", ("--arrivals", "burst:9"), STOCK_AND_OURS), Case("(c)", ("--arrivals", "poisson:2"))]
    return render_summary([Table("rtx4090", "", "", cases)], lambda case: runs)


def cells(text, title):
    (line,) = re.findall(rf"^\| {re.escape(title)} \|.*$", text, re.MULTILINE)[-1:]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_summary_says_which_goals_are_met():
    text = summary()
    assert "| RTX 4090 (a) | 0.50 | -97.5% | -96.7% | 2.00 x | 1.00 x | 0 | 0 (fcfs) | yes |" in text
    assert "Of the 1 bursts the whole goal is reached by RTX 4090 (a)." in text
    assert cells(text, "RTX 4090 (a)") == [
        "RTX 4090 (a)", "0.50", "0.950", "0.940 (andes)", "yes",
        "0.10", "0.20 (andes)", "yes", "0", "90 (andes)", "yes",
    ]  # fmt: skip
    assert "Demand over" not in text


def test_the_summary_says_what_is_missed():
    text = summary(effective=150.0, stall_s=30.0, p99_s=0.5, qoe=0.93)
    assert "| 1.50 x | 1.00 x | 30 | 0 (fcfs) | **no**: effective, stalls |" in text
    below = cells(text, "RTX 4090 (a)")
    assert "Of the 1 Poisson set-ups the whole goal is reached by none." in text
    assert [below[place] for place in (4, 7, 10)] == ["**no**", "**no**", "yes"]  # andes stalls for longer
    above = summary(demand=1.6, stall_s=0.5, qoe=0.936)  # within what counts as no worse
    assert cells(above, "RTX 4090 (a)")[4:] == ["yes", "0", "0 (fcfs)", "yes", "2.00 x", "yes", "nobody"]
    assert "Demand under" not in above
    worse = summary(demand=1.6, stall_s=60.0, qoe=0.8)
    assert cells(worse, "RTX 4090 (a)")[-1] == "fcfs, chunked"  # andes has the better QoE and more stalls


def test_the_page_has_its_marks_and_takes_text_between_them():
    page = PAGE.read_text(encoding="utf-8")
    for name in ("summary", "tables"):
        changed = between(page, name, "NEW")
        assert "NEW" in changed
        assert between(changed, name, "NEWER").count("NEW") == 1
    with pytest.raises(ValueError, match="lacks the marks"):
        between("nothing", "tables", "")


@pytest.mark.parametrize(("old", "says"), [(0, ""), (3, "3 of the 9 runs below"), (9, "All runs below")])
def test_the_page_says_which_runs_are_old(old, says):
    assert note_of_age(9, old).startswith(says)
    assert bool(note_of_age(9, old)) == bool(old)


def test_the_evaluation_covers_what_it_must():
    by_key = {table.key: table for table in TABLES}
    assert len(by_key["rtx4090"].cases) == 4
    assert len(by_key["h200"].cases) == 8
    assert {"rates", "traces", "sensitivity", "ablations", "overload", "host", "link", "scale"} <= by_key.keys()
    drawn = [case for key, table in by_key.items() if key not in ("traces", "scale") for case in table.cases]
    assert all(len(case.seeds) == 3 for case in drawn)
    assert replace(drawn[0], seeds=(7,)).command[-2:] == ["--seed", "7"]
