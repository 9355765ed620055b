"""What SGLang itself can check while it runs, switched on for an engine; and what its log must not say afterwards."""

import contextlib
import re
from collections.abc import Iterator

# A page that is lost, freed twice or used after it was freed ends the engine at once, busy or idle.
_STRICT = {
    "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY": "1",
    "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE": "1",
    "SGLANG_CHECK_KV_PAGE_INVARIANTS": "1",
}
_BAD = re.compile(r"Traceback|leak|tokenflow: fault|use-after-free|double free|Assertion", re.IGNORECASE)


def strict_checks(environment: dict[str, str]) -> None:
    environment.update(_STRICT)


def bad_lines(rig) -> list[str]:
    """Lines of the engine's log that tell of a fault; without SGLang's listing of its own options."""
    lines = (line for path in rig.state.rglob("engine*.log") for line in path.read_text(errors="replace").splitlines())
    return [line[:300] for line in lines if _BAD.search(line[:2000]) and "server_args" not in line]


def assert_clean_log(rig) -> None:
    assert bad_lines(rig) == []


@contextlib.contextmanager
def log_on_failure(rig) -> Iterator[None]:
    """Prints what the engine's log says of faults, and its end, when the block fails: the folder goes with the test."""
    try:
        yield
    except BaseException:
        print("\n".join(["--- faults in the engine's log", *bad_lines(rig)[:30], rig.log(60)[-8000:]]))
        raise
