"""How a change of tunables is undone. Pure."""

from collections.abc import Sequence

from tokenflow.tuning import Origin, TunableRow, TuneRequest


def way_back(rows: Sequence[TunableRow], *, is_file_changed: bool) -> list[TuneRequest]:
    """What brings `rows` back, in this order: values, their origins, and what was persisted of them.

    `rows`: as they were before the change. `is_file_changed`: the change was persisted, or was a reset, which forgets
    what had been persisted.
    """
    kept, forgotten, again = {}, [], {}
    for row in rows:
        was_tuned = row.origin is Origin.TUNED
        if row.persisted is None:
            if is_file_changed or not was_tuned:
                forgotten.append(row.key)  # also the way back to what profile and settings say, origin included
        elif is_file_changed:
            kept[row.key] = row.persisted
        if row.value is not None and (was_tuned or (row.persisted is not None and not is_file_changed)):
            again[row.key] = row.value
    steps = []
    if kept:
        steps.append(TuneRequest(changes=kept, persist=True))
    if forgotten:
        steps.append(TuneRequest(reset=forgotten))
    if again:
        steps.append(TuneRequest(changes=again))
    return steps
