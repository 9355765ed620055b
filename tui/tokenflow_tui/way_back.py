"""How a change of tunables is undone. Pure."""

from collections.abc import Sequence

from tokenflow.tuning import Origin, TunableRow, TuneRequest


def way_back(rows: Sequence[TunableRow], *, is_file_changed: bool) -> list[TuneRequest]:
    """What brings `rows` back, in this order. `rows`: as they were before the change.

    `is_file_changed`: the change was persisted, or was a reset, which forgets what had been persisted. Then the file
    comes first: what it held it holds again, and what it did not hold is forgotten.
    """
    steps = []
    again = {row.key: row.value for row in rows if row.value is not None}
    if is_file_changed:
        kept = {row.key: row.persisted for row in rows if row.persisted is not None}
        forgotten = [row.key for row in rows if row.persisted is None]
        if kept:
            steps.append(TuneRequest(changes=kept, persist=True))
        if forgotten:
            steps.append(TuneRequest(reset=forgotten))
        again = {row.key: row.value for row in rows if row.origin is Origin.TUNED and row.value is not None}
    if again:
        steps.append(TuneRequest(changes=again))
    return steps
