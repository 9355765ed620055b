"""Fits the simulator's step formulas to published tables and writes engine/tokenflow/sim/models/data/.

    python tools/fit_perf.py            # every file
    python tools/fit_perf.py --check    # how far the files are from a new fit; writes nothing

The tables are read from ../shared/data/perf beside the repository, or from the folder in TOKENFLOW_PERF_DATA. They are
not part of it. One file needs no table and the package aiconfigurator-core: pip install 'tokenflow-serving[sim]'.
"""

import argparse
import os
import sys
from pathlib import Path

from perf_files import DATA, rounded, target_path, text_of
from perf_tables import TARGETS, Target, is_at_hand, samples_from
from tokenflow.sim.models.fit import fit_formula, residuals
from tokenflow.sim.models.load import load_model

LONGEST_CONTEXT_TOKENS = 8192  # beyond it kernels split the work otherwise, and a sum of terms strays


def tables_folder() -> Path:
    """Where the tables are, present or not."""
    beside = Path(__file__).resolve().parents[1] / ".." / "shared" / "data" / "perf"
    return Path(os.environ.get("TOKENFLOW_PERF_DATA", beside))


def file_text(target: Target, folder: Path) -> str:
    """What the target's file should hold, by the tables in `folder`."""
    within, beyond = samples_from(target, folder, LONGEST_CONTEXT_TOKENS)
    formula = rounded(fit_formula(within))
    errors, far_errors = residuals(formula, within), residuals(formula, beyond)
    return text_of(target, formula, errors, far_errors, LONGEST_CONTEXT_TOKENS)


def greatest_difference(target: Target, folder: Path) -> float:
    """Between the file's formula and a new fit, relative, over the steps of the tables."""
    within, _ = samples_from(target, folder, LONGEST_CONTEXT_TOKENS)
    there, fresh = load_model(target.gpu, target.model).formula, fit_formula(within)
    return max(abs(there.step_s(one.work) / fresh.step_s(one.work) - 1.0) for one in within)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare the files with a new fit, write nothing")
    is_check = parser.parse_args().check
    folder = tables_folder()
    if not folder.is_dir():
        sys.exit(f"error: no tables in {folder}\nhint: set TOKENFLOW_PERF_DATA to the folder that holds them")
    DATA.mkdir(exist_ok=True)
    for target in TARGETS:
        if not is_at_hand(target):
            print(f"{target.gpu:8} {target.model:14} as it is: aiconfigurator-core is not installed")
        elif is_check:
            print(f"{target.gpu:8} {target.model:14} {greatest_difference(target, folder):.3%}")
        else:
            target_path(target).write_text(file_text(target, folder))
            print(f"wrote {target_path(target).name}")


if __name__ == "__main__":
    main()
