"""`python -m tokenflow.setup [--quiet]`: the engine's CPU packages and the demo model. Safe to repeat.

Says what it does while it does it; with `--quiet` only what there was to do.
"""

import argparse
import sys

from tokenflow.errors import TokenFlowError
from tokenflow.setup import model, packages


class Teller:
    """Prints what is going on: every new step, and every tenth of a long one."""

    def __init__(self, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self._last: tuple[str, int] | None = None

    def packages(self, text: str) -> None:
        if not (self._is_quiet and text == packages.IN_PLACE):
            print(f"engine: {text}", flush=True)

    def model(self, text: str, ratio: float | None) -> None:
        if self._is_quiet and self._last is None and ratio == 1.0:
            return  # there was nothing to do
        step = (text.partition(" (")[0], int((ratio or 0.0) * 10))
        if step != self._last:
            self._last = step
            print(f"model: {text}" + ("" if ratio is None else f" [{ratio:.0%}]"), flush=True)


def main() -> int:
    """0 when everything is in place; else the error's exit code, its message and the next command on stderr."""
    parser = argparse.ArgumentParser(prog="python -m tokenflow.setup", description=__doc__)
    parser.add_argument("--quiet", action="store_true", help="say nothing about what is in place already")
    teller = Teller(parser.parse_args().quiet)
    try:
        packages.install_cpu(teller.packages)
        model.ensure_demo_model(teller.model)
    except TokenFlowError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
