"""Runs of the evaluation, one policy and one seed each, kept in a folder so that nothing is run twice.

A result is good as long as its command line and the code behind it are the same: the files of the simulator for the
baselines, and those of the policy besides for `tokenflow`, `paper` and `guide`.
"""

import ast
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation_setups import DATA, OURS, Case, Table

ROOT = Path(__file__).parents[1]
_ENGINE = ROOT / "engine"
_FIRST_MODULES = ("tokenflow.sim.experiment", "tokenflow.sim.document", "tokenflow.sim.workloads")
_POLICY_ITSELF = "tokenflow.policy.planner"  # what only it needs is nothing to the baselines
_NO_FIGURES = ("tokenflow.wire", "tokenflow.errors", "tokenflow.version")  # forms and messages

Run = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Unit:
    """One policy with one seed in one case."""

    table: str
    case: str
    policy: str
    seed: int
    arguments: tuple[str, ...]

    @property
    def command(self) -> list[str]:
        """Without the program's name."""
        return ["simulate", *self.arguments, "--policy", self.policy, "--seed", str(self.seed)]

    @property
    def name(self) -> str:
        return f"{self.table}: {self.case}: {self.policy}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class Result:
    """What one unit gave. `is_current`: made by the code as it is now."""

    run: Run
    wall_s: float
    is_current: bool


class RunStore:
    """One file a unit. Ones that are half written are not read: they are renamed into place."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._code = {is_ours: code_of(is_ours) for is_ours in (True, False)}
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, unit: Unit) -> Result | None:
        path = self._path(unit)
        if not path.exists():
            return None
        kept = json.loads(path.read_text(encoding="utf-8"))
        return Result(kept["run"], kept["wall_s"], kept["code"] == self._code[unit.policy in OURS])

    def put(self, unit: Unit, run: Run, wall_s: float) -> bool:
        """False, and nothing kept, if the code has been changed since this store was opened: nobody knows then what
        made the run."""
        code = self._code[unit.policy in OURS]
        if code_of(unit.policy in OURS) != code:
            return False
        kept = {"command": unit.command, "code": code, "wall_s": wall_s, "run": run}
        unfinished = self._path(unit).with_suffix(".part")
        unfinished.write_text(json.dumps(kept), encoding="utf-8")
        unfinished.replace(self._path(unit))
        return True

    def runs_of(self, case: Case) -> list[Run]:
        """What there is of a case, in the order of its policies and seeds."""
        found = [self.get(unit) for unit in units_of_case("", case)]
        return [one.run for one in found if one is not None]

    def _path(self, unit: Unit) -> Path:
        return self._folder / f"{hashlib.sha256(json.dumps(unit.command).encode()).hexdigest()[:24]}.json"


def units_of(table: Table, seed_count: int | None = None) -> list[Unit]:
    """All runs of a table; with `seed_count` at most so many seeds a case."""
    return [unit for case in table.cases for unit in units_of_case(table.key, case, seed_count)]


def units_of_case(key: str, case: Case, seed_count: int | None = None) -> list[Unit]:
    return [
        Unit(key, case.title, policy, seed, (*case.arguments, *(case.ours if policy in OURS else ())))
        for policy in case.policies
        for seed in case.seeds[:seed_count]
    ]


def run_all(units: Sequence[Unit], store: RunStore, jobs: int, say: Callable[[str], None]) -> list[str]:
    """Runs what is missing or was made by other code, `jobs` at a time; the names of those that failed.

    Interrupted, it keeps what has ended and leaves the rest to the next call.
    """
    kept = {unit: store.get(unit) for unit in units}
    missing = [unit for unit, one in kept.items() if one is None or not one.is_current]
    known = {unit: one.wall_s for unit, one in kept.items() if one is not None}
    say(f"{len(kept) - len(missing)} of {len(kept)} runs are there already{_estimate(missing, known, jobs)}")
    failed, done, begin_s = [], 0, time.perf_counter()
    with ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(simulated, unit): unit for unit in missing}
        try:
            for future in as_completed(futures):
                unit, (run, wall_s, problem) = futures[future], future.result()
                done += 1
                left_s = (time.perf_counter() - begin_s) / done * (len(missing) - done)
                if run is not None and not store.put(unit, run, wall_s):
                    run, problem = None, "the code was changed while it ran; run this again"
                if run is None:
                    failed.append(unit.name)
                    say(f"{unit.name}: FAILED: {problem}")
                else:
                    say(f"{done}/{len(missing)} {unit.name}: {wall_s:.0f} s; about {left_s / 60:.0f} min left")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failed


def simulated(unit: Unit) -> tuple[Run | None, float, str]:
    """The run, the seconds that it took, and why there is none."""
    program = [sys.executable, "-c", "from tfctl.main import main; main()"]
    data = os.environ.get("TOKENFLOW_DATA", DATA)
    command = [word.replace(DATA, data) for word in unit.command]
    begin_s = time.perf_counter()
    ended = subprocess.run([*program, *command, "--json"], capture_output=True, text=True, cwd=ROOT, check=False)
    wall_s = time.perf_counter() - begin_s
    if ended.returncode != 0:
        return None, wall_s, f"exit code {ended.returncode}: {(ended.stdout + ended.stderr).strip()[-400:]}"
    run: Run = json.loads(ended.stdout)["runs"][0]
    return run, wall_s, ""


def code_of(is_ours: bool) -> str:
    """One hash over the files that a run depends on."""
    digest = hashlib.sha256()
    for path in sorted(_files((*_FIRST_MODULES, _POLICY_ITSELF) if is_ours else _FIRST_MODULES)):
        digest.update(path.relative_to(_ENGINE).as_posix().encode() + b"\0" + path.read_bytes())
    for path in sorted((_ENGINE / "tokenflow/sim/models/data").glob("*")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _files(modules: Iterable[str]) -> set[Path]:
    """These modules of ours and all that they import, the policy itself only where it is among them."""
    open_modules, found = list(modules), set()
    has_policy = _POLICY_ITSELF in open_modules
    while open_modules:
        name = open_modules.pop()
        path = _path_of(name)
        is_left_out = name in _NO_FIGURES or (name == _POLICY_ITSELF and not has_policy)
        if path is None or path in found or is_left_out:
            continue
        found.add(path)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tokenflow"):
                open_modules += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


def _path_of(module: str) -> Path | None:
    base = _ENGINE / module.replace(".", "/")
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def _estimate(missing: Sequence[Unit], known: dict[Unit, float], jobs: int) -> str:
    if not missing:
        return ""
    timed = [known[unit] for unit in missing if unit in known]
    if len(timed) < len(missing) / 2:
        return f"; {len(missing)} to run"
    mean_s = sum(timed) / len(timed)
    return f"; {len(missing)} to run, about {mean_s * len(missing) / jobs / 60:.0f} min by what they took last time"
