"""How tunables are shown."""

from collections.abc import Collection

from tfctl.output import Look, Role
from tokenflow.tuning import ALL_KEYS, Applies, Origin, TunableRow, TunablesDocument

_COLUMNS = ("KEY", "VALUE", "DEFAULT", "RANGE", "ORIGIN")


def table(document: TunablesDocument, look: Look) -> list[str]:
    """One line a tunable, those that are not at their default in bold; then the revision."""
    cells = [_COLUMNS, *(_cells(row) for row in document.tunables)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    painted = [look.paint(lines[0], Role.FAINT)]
    for row, line in zip(document.tunables, lines[1:], strict=True):
        painted.append(look.paint(line, Role.PLAIN if row.origin in (None, Origin.DEFAULT) else Role.STRONG))
    painted.append("")
    is_known = any(row.origin is not None for row in document.tunables)
    painted.append(f"revision {document.revision}" if is_known else "no values: no engine is serving")
    return painted + _kept_lines(document.tunables)


def changed_lines(document: TunablesDocument, keys: Collection[str]) -> list[str]:
    """The values that were asked for, as they are in force (or would be); without an engine, what the next one gets."""
    rows = [row for row in document.tunables if row.key in keys or ALL_KEYS in keys]
    is_known = any(row.origin is not None for row in rows)
    if document.dry_run:
        return [*(_changed(row) for row in rows if is_known), "nothing was changed: a dry run"]
    if not is_known:
        return ["no engine is serving; the next one starts with:", *(_kept(row) for row in rows)]
    return [*(_changed(row) for row in rows), f"revision {document.revision}"]


def _changed(row: TunableRow) -> str:
    kept = "persisted" if row.origin is Origin.PERSISTED else ""
    later = "for streams that begin from now on" if row.applies is Applies.DRAIN else ""
    note = ", ".join(part for part in (later, kept) if part)
    return f"{row.key} = {_text(row.value)}" + (f"  ({note})" if note else "")


def _kept(row: TunableRow) -> str:
    value = "as profile and settings say" if row.persisted is None else _text(row.persisted)
    return f"{row.key} = {value}"


def _kept_lines(rows: Collection[TunableRow]) -> list[str]:
    """What the next engine will start with and this one does not work with."""
    others = [row for row in rows if row.persisted is not None and row.persisted != row.value]
    return [f"persisted, for the next start: {row.key} = {_text(row.persisted)}" for row in others]


def _cells(row: TunableRow) -> tuple[str, ...]:
    limits = ", ".join(row.choices) if row.choices else f"{_text(row.minimum)} to {_text(row.maximum)}"
    value = "-" if row.value is None else _text(row.value)
    return row.key, value, _text(row.default), limits, row.origin or "-"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, int | float) else str(value)
