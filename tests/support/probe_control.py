"""The test's side of `engine_probe`: puts the plugin on an engine's path, gives orders and reads what came of them."""

import json
import os
import time
from pathlib import Path
from typing import Any

from engine_probe import ANSWERS, ENV, ORDERS

LIMIT_S = 60.0


class ProbeControl:
    """Make it before the engine starts. `environment` is what the engine will be started with, and is added to."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder / "probe"
        self._folder.mkdir()
        self._number = 0
        site = folder / "site"
        metadata = site / "engine_probe-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: engine-probe\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text("[sglang.srt.plugins]\nengine_probe = engine_probe:register\n")
        parts = [str(site), str(Path(__file__).parent), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(part for part in parts if part)
        environment[ENV] = str(self._folder)

    def order(self, **orders: Any) -> dict[str, Any]:
        """Replaces the standing orders (`faults`, `aborts`, `report`, ...) and returns the first answer to them."""
        self._number += 1
        temporary = self._folder / f"{ORDERS}.new"
        temporary.write_text(json.dumps({"number": self._number, **orders}))
        temporary.rename(self._folder / ORDERS)
        return self._when(lambda answer: True)

    def answer(self) -> dict[str, Any]:
        """What has come of the present orders so far. The probe writes it at most ten times a second."""
        return self._when(lambda answer: True)

    def report(self) -> dict[str, Any]:
        """What the scheduler holds once it is idle."""
        self.order(report=True)
        report = self._when(lambda answer: answer["report"] is not None)["report"]
        assert isinstance(report, dict)
        return report

    def _when(self, condition: Any) -> dict[str, Any]:
        deadline_s = time.monotonic() + LIMIT_S
        answer = None
        while time.monotonic() < deadline_s:
            try:
                answer = json.loads((self._folder / ANSWERS).read_text())
            except FileNotFoundError:
                answer = None
            assert answer is None or answer["problems"] == [], "\n".join(answer["problems"])
            if answer is not None and answer["number"] == self._number and condition(answer):
                return answer  # type: ignore[no-any-return]
            time.sleep(0.05)
        raise AssertionError(f"the probe did not answer order {self._number} within {LIMIT_S} s: {answer}")


def assert_nothing_is_held(report: dict[str, Any]) -> None:
    """Nothing is locked, no row and no request is left, and both pools are whole once the tree gives back its part."""
    assert report.pop("tree_fault") is None, report
    assert report.pop("host_tokens_cached") > 0, report
    assert report == dict.fromkeys(report, 0)
