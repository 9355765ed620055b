"""Makes the tables of docs/evaluation.md (`make evaluate`).

    python tools/evaluate.py [TABLE ...]      run these tables, or all, and write the page anew
    python tools/evaluate.py --render         only write the page, from the results that are there
    python tools/evaluate.py --list           what there is to run, and how long it takes

Every policy and seed of a `tfctl simulate` command line is a run of its own; two run at a time (`--jobs`). Results
are kept in .build/evaluation: what was interrupted goes on where it was, and a run is made anew only when its command
line or the code behind it has changed (a change of the policy alone leaves the baselines' results as they are).
"""

import argparse
import os
import sys
from functools import partial
from pathlib import Path

from evaluation_runs import ROOT, RunStore, Unit, run_all, units_of
from evaluation_setups import TABLES, Table
from evaluation_summary import render_summary
from evaluation_tables import render_table

RESULTS = ROOT / ".build" / "evaluation"
PAGE = ROOT / "docs" / "evaluation.md"
MARKS = "<!-- {}: begin -->", "<!-- {}: end -->"
say = partial(print, flush=True)


def main() -> int:
    known = {table.key: table for table in TABLES}
    options = _options(known)
    store = RunStore(RESULTS)
    units = [unit for key in options.tables or known for unit in units_of(known[key], options.seeds)]
    if options.policies:
        units = [unit for unit in units if unit.policy in options.policies]
    if options.list:
        _list(units, store)
        return 0
    try:
        failed = [] if options.render else run_all(units, store, options.jobs, say)
    except KeyboardInterrupt:
        print("interrupted: what has ended is kept, and the same command goes on from here", file=sys.stderr)
        return 130
    _render(store)
    for name in failed:
        print(f"failed: {name}", file=sys.stderr)
    return int(bool(failed))


def _options(known: dict[str, Table]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(known))
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 2), metavar="N", help="runs at a time")
    parser.add_argument("--seeds", type=int, metavar="N", help="at most so many seeds a case, for a quicker look")
    parser.add_argument(
        "--policy", action="append", dest="policies", metavar="NAME", help="run these only (repeatable)"
    )
    parser.add_argument("--render", action="store_true", help="run nothing")
    parser.add_argument("--list", action="store_true", help="run and write nothing")
    options = parser.parse_args()
    unknown = [key for key in options.tables if key not in known]
    if unknown:
        parser.error(f"no table {unknown[0]!r}; there are {', '.join(known)}")
    if options.jobs < 1:
        parser.error("--jobs is at least 1")
    return options


def _list(units: list[Unit], store: RunStore) -> None:
    """By table: runs, those that are there, seconds that they took."""
    for key in dict.fromkeys(unit.table for unit in units):
        of_table = [unit for unit in units if unit.table == key]
        kept = [one for unit in of_table if (one := store.get(unit)) is not None]
        current = sum(one.is_current for one in kept)
        took_s = sum(one.wall_s for one in kept)
        say(f"{key:12} {len(of_table):4} runs, {current:4} current, {len(kept):4} kept, which took {took_s:.0f} s")


def _render(store: RunStore) -> None:
    """Writes what was found between the page's marks; a table without results keeps out."""
    kept = [one for table in TABLES for unit in units_of(table) if (one := store.get(unit)) is not None]
    note = note_of_age(len(kept), sum(not one.is_current for one in kept))
    page = PAGE.read_text(encoding="utf-8")
    tables = "\n".join(filter(None, (note, *(render_table(table, store.runs_of) for table in TABLES))))
    page = between(page, "summary", render_summary(TABLES, store.runs_of))
    PAGE.write_text(between(page, "tables", tables), encoding="utf-8")


def note_of_age(run_count: int, old_count: int) -> str:
    """What the page says of runs that the present code has not made; empty where there are none."""
    if not old_count:
        return ""
    which = "All" if old_count == run_count else f"{old_count} of the {run_count}"
    return f"{which} runs below were made by an older version of this code; `make evaluate` makes them again.\n"


def between(page: str, name: str, text: str) -> str:
    """The page with `text` between the marks of this name. Raises ValueError where they are missing."""
    begin, end = (mark.format(name) for mark in MARKS)
    head, found, rest = page.partition(begin)
    _, ended, tail = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"{Path(PAGE).name} lacks the marks {begin} and {end}")
    return f"{head}{begin}\n\n{text}\n{end}{tail}"


if __name__ == "__main__":
    sys.exit(main())
