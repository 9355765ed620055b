"""`tuned.toml`: what was tuned with `--persist`. Operators may edit it by hand; their comments are kept."""

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tomlkit
from pydantic import BaseModel, ConfigDict, ValidationError
from tomlkit.exceptions import TOMLKitError

from tokenflow.errors import ConfigurationError, OperationError
from tokenflowd.profiles.tunables import TunableOverrides
from tokenflowd.toml_file import faults_text, read_table

FORMAT = 1
_HEADING = "Written by `tfctl tune --persist`, above profiles and settings. Forget a value: tfctl tune --reset KEY"
_HINT = "correct it, or forget all that was persisted: tfctl tune --reset"


class _Contents(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: int = FORMAT
    tunables: TunableOverrides = TunableOverrides()


class TunedFile:
    """Read afresh at each use. Replaced as a whole, so that a crash leaves the old contents or the new ones."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> TunableOverrides:
        """Nothing where there is no file. Raises ConfigurationError with every fault of one that is there."""
        if not self.path.exists():
            return TunableOverrides()
        table, text = read_table(self.path, _HINT)
        found = table.get("format", FORMAT)
        if isinstance(found, int) and found > FORMAT:
            raise ConfigurationError(
                f"{self.path} is of format {found}, which a newer TokenFlow has written; this one reads {FORMAT}",
                hint=_HINT,
            )
        try:
            return _Contents.model_validate(table).tunables
        except ValidationError as error:
            raise ConfigurationError(faults_text(error, str(self.path), text), hint=_HINT) from error

    def draft(self, values: Mapping[str, Any], forget: Collection[str], who: str | None) -> "TunedDraft":
        """The file with `values` and without `forget`, on the disk under another name until it is committed.

        Raises ConfigurationError for a file that cannot be read, OperationError where nothing can be written.
        """
        if self.path.exists() and not set(TunableOverrides.model_fields) <= set(forget):
            self.load()
            text = self.path.read_text(encoding="utf-8")
        else:
            text = ""  # there is none, or nothing of it is to stay: a broken one is no hindrance
        return TunedDraft(self.path, _edited(text, values, forget, who))


class TunedDraft:
    """Written and synced: a commit is one rename, and cannot fail for want of room."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._draft = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._draft.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self.discard()
            raise _cannot_keep(path, error, "nothing was changed") from error

    def commit(self) -> None:
        """Raises OperationError."""
        try:
            self._draft.replace(self._path)
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            self.discard()
            raise _cannot_keep(self._path, error, "the values are in force until the engine stops") from error

    def discard(self) -> None:
        with suppress(OSError):
            self._draft.unlink()


def _cannot_keep(path: Path, error: OSError, outcome: str) -> OperationError:
    return OperationError(
        f"cannot write {path}: {error.strerror}; {outcome}",
        hint=f"make room or give access to {path.parent}; or tune without --persist",
        field="persist",
    )


def _edited(text: str, values: Mapping[str, Any], forget: Collection[str], who: str | None) -> str:
    try:
        document = tomlkit.parse(text)
    except TOMLKitError as error:  # what tomllib has taken
        raise ConfigurationError(f"cannot edit: {error}", hint=_HINT) from error
    if not text:
        document.add(tomlkit.comment(_HEADING))
        document["format"] = FORMAT
    tunables = document.setdefault("tunables", tomlkit.table())
    stamp = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    for key in forget:
        if key in tunables:
            del tunables[key]
    for key, value in values.items():
        item = tomlkit.item(value)
        item.comment(f"{stamp} by {who or 'somebody unknown'}")
        tunables[key] = item
    return tomlkit.dumps(document)
