"""Checks a model folder before an engine spends half a minute on finding out that it is broken."""

import json
import struct
from pathlib import Path
from typing import Any

from tokenflow.errors import ModelError
from tokenflow.setup import manifest

_USE_DEMO_MODEL = "give the folder of a Hugging Face model as [model] path in the profile, or run: tfctl start demo-cpu"
_GET_AGAIN = "get the model's files again, then run: tfctl start"
_OTHER_WEIGHTS = ("*.bin", "*.pt", "*.gguf")
_HEADER_LIMIT_BYTES = 100_000_000  # safetensors' own limit


def check_model_folder(path: Path) -> None:
    """Raises ModelError unless `path` is a model folder that looks whole.

    Read are the configuration and the headers of the weights, not the weights: a second at most. A folder that
    TokenFlow made is compared with its manifest as well.
    """
    if not path.is_dir():
        what = "is not a folder" if path.exists() else "does not exist"
        raise ModelError(f"the model folder {path} {what}", hint=_USE_DEMO_MODEL)
    _read_json_object(path / "config.json")
    if (path / manifest.FILE_NAME).is_file():
        problems = manifest.verify(path, thorough=False)
        if problems:
            raise ModelError(f"the model folder {path} is damaged: {problems[0]}", hint=_GET_AGAIN)
    for file in _weight_files(path):
        if file.suffix == ".safetensors":
            check_safetensors(file)
        elif file.stat().st_size == 0:
            raise ModelError(f"{file} is empty", hint=_GET_AGAIN)


def _weight_files(folder: Path) -> list[Path]:
    """The files that hold the weights, all of them present. Raises ModelError when one is missing or there is none."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = set(_read_json_object(index).get("weight_map", {}).values())
        missing = sorted(name for name in names if not (folder / name).is_file())
        if missing:
            raise ModelError(
                f"the weights in {folder} are incomplete: {missing[0]} is missing"
                + (f" and {len(missing) - 1} more" if len(missing) > 1 else ""),
                hint=_GET_AGAIN,
            )
        return [folder / name for name in sorted(names)]
    for pattern in ("*.safetensors", *_OTHER_WEIGHTS):
        files = sorted(folder.glob(pattern))
        if files:
            return files
    raise ModelError(f"there are no weights in {folder}", hint=_USE_DEMO_MODEL)


def check_safetensors(path: Path) -> None:
    """Raises ModelError unless the file is as long as its header says (format: 8 bytes length, JSON, data)."""
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        header_bytes = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        if not 0 < header_bytes <= min(_HEADER_LIMIT_BYTES, size_bytes - 8):
            raise ModelError(f"{path} is not a safetensors file, or only its beginning", hint=_GET_AGAIN)
        try:
            header = json.loads(file.read(header_bytes))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
            expected_bytes = 8 + header_bytes + max(ends, default=0)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise ModelError(f"the header of {path} cannot be read", hint=_GET_AGAIN) from error
    if size_bytes != expected_bytes:
        raise ModelError(
            f"{path} has {size_bytes} bytes, but its header describes {expected_bytes}: "
            f"it is {'cut short' if size_bytes < expected_bytes else 'too long'}",
            hint=_GET_AGAIN,
        )


def _read_json_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError(f"{path.parent} is not a model folder: it has no {path.name}", hint=_USE_DEMO_MODEL) from error
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}", hint=f"look at it with: ls -l {path}") from error
    except ValueError as error:
        raise ModelError(f"{path} is not valid JSON: {error}", hint=_GET_AGAIN) from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} does not hold a JSON object", hint=_GET_AGAIN)
    return value
