"""Makes the tables of docs/evaluation.md (`make evaluate`).

    python tools/evaluate.py [TABLE ...]      run these tables, or all; results are kept in .build/evaluation
    python tools/evaluate.py --render         only write the page anew from the results that are there

Each case is one `tfctl simulate --json` command line, which stands under its table.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from evaluation_setups import DATA, TABLES, Case, Table
from evaluation_tables import render_table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / ".build" / "evaluation"
PAGE = ROOT / "docs" / "evaluation.md"
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(table.key for table in TABLES))
    parser.add_argument("--seeds", type=int, metavar="N", help="at most so many seeds a case, for a quicker look")
    parser.add_argument("--render", action="store_true", help="run nothing")
    options = parser.parse_args()
    known = {table.key: table for table in TABLES}
    unknown = [key for key in options.tables if key not in known]
    if unknown:
        parser.error(f"no table {unknown[0]!r}; there are {', '.join(known)}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    if not options.render:
        for key in options.tables or known:
            run(known[key], options.seeds)
    render()
    return 0


def run(table: Table, seed_count: int | None) -> None:
    """All cases of a table. One that cannot run is left out, and said so."""
    found = []
    for planned in table.cases:
        case = replace(planned, seeds=planned.seeds[:seed_count])
        begin_s = time.perf_counter()
        document = simulated(case)
        if document is not None:
            found.append({"title": case.title, "command": case.command, "document": document})
            (RESULTS / f"{table.key}.json").write_text(json.dumps(found), encoding="utf-8")
            print(f"{table.key}: {case.title}: {time.perf_counter() - begin_s:.0f} s", flush=True)


def simulated(case: Case) -> dict[str, Any] | None:
    """The document of one command line; None, with the reason on stderr, where it failed."""
    program = [sys.executable, "-c", "from tfctl.main import main; main()"]
    data = os.environ.get("TOKENFLOW_DATA", DATA)
    command = [word.replace(DATA, data) for word in case.command]
    ended = subprocess.run([*program, *command, "--json"], capture_output=True, text=True, cwd=ROOT, check=False)
    if ended.returncode != 0:
        print(f"{case.title}: {ended.stdout.strip()[-300:]} {ended.stderr.strip()[-300:]}", file=sys.stderr)
        return None
    document: dict[str, Any] = json.loads(ended.stdout)
    return document


def render() -> None:
    """Writes the tables between the page's marks; a table without results keeps out."""
    parts = []
    for table in TABLES:
        path = RESULTS / f"{table.key}.json"
        if path.exists():
            results = {one["title"]: one for one in json.loads(path.read_text(encoding="utf-8"))}
            parts.append(render_table(table, results))
    page = PAGE.read_text(encoding="utf-8")
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n\n" + "\n".join(parts) + f"\n{END}{tail}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
