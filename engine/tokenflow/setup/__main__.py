"""`python -m tokenflow.setup`: the engine's CPU packages and the demo model, in this environment. Safe to repeat."""

import sys

from tokenflow.errors import TokenFlowError
from tokenflow.setup import model, packages


class Teller:
    """Prints what is going on: every new step, and every tenth of a long one."""

    def __init__(self) -> None:
        self._last: tuple[str, int] | None = None

    def packages(self, text: str) -> None:
        print(f"engine: {text}", flush=True)

    def model(self, text: str, ratio: float | None) -> None:
        step = (text.partition(" (")[0], int((ratio or 0.0) * 10))
        if step != self._last:
            self._last = step
            print(f"model: {text}" + ("" if ratio is None else f" [{ratio:.0%}]"), flush=True)


def main() -> int:
    """0 when everything is in place; else the error's exit code, its message and the next command on stderr."""
    teller = Teller()
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
