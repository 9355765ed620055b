"""The stand-ins take the place of missing packages only, in this process and in spawned children, and never compute."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tokenflow.sglang import launch
from tokenflow.sglang.standins import StandInError, triton
from tokenflow.sglang.standins.placeholder import Placeholder

CHILD = """
import multiprocessing, os, sys

def look(queue):
    import torchvision, triton
    from torchvision.transforms import InterpolationMode, functional
    queue.put([__name__, type(triton).__name__, triton.backends.backends, triton.cdiv(7, 2),
               type(functional).__name__, InterpolationMode.BICUBIC.value, os.environ.get("SGLANG_USE_CPU_ENGINE")])

from tokenflow.sglang import standins
standins.install()  # as in the launcher: at import of the main module, in the children too
import triton.backends

if __name__ == "__main__":
    import json
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=look, args=(queue,))
    child.start()
    answer = queue.get(timeout=120)
    child.join()
    print(json.dumps(answer))
"""


def run(code: str, *path: Path, cwd: Path) -> str:
    script = cwd / "program.py"
    script.write_text(code)
    environment = {"PYTHONPATH": ":".join(map(str, path)), "PATH": "/usr/bin:/bin"}
    completed = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment, cwd=cwd, check=False
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout.strip()


needs_missing_packages = pytest.mark.skipif(
    bool(set(sys.modules) & {"triton", "torchvision"})
    or any((Path(entry) / name).is_dir() for entry in sys.path for name in ("triton", "torchvision")),
    reason="triton or torchvision is really installed here",
)


@needs_missing_packages
def test_spawned_child_gets_them(tmp_path: Path) -> None:
    name, kind, backends, quotient, submodule, value, _ = json.loads(run(CHILD, cwd=tmp_path))
    assert name == "__mp_main__"
    assert (kind, submodule) == ("StandInModule", "StandInModule")
    assert (backends, quotient, value) == ({}, 4, "bicubic")


@needs_missing_packages
def test_torch_is_not_deceived(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    code = (
        "from tokenflow.sglang import standins\nstandins.install()\nimport triton\n"
        "from torch.utils._triton import has_triton_package\nprint(has_triton_package())"
    )
    assert run(code, cwd=tmp_path) == "False"


def test_real_package_wins(tmp_path: Path) -> None:
    for name in ("triton", "torchvision", "sgl_kernel"):
        package = tmp_path / "site" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("REAL = True")
    code = (
        "from tokenflow.sglang import standins\nnames = standins.install()\n"
        "import triton, torchvision, sgl_kernel, sys\n"
        "found = [type(finder).__name__ for finder in sys.meta_path]\n"
        "print(names, triton.REAL, torchvision.REAL, sgl_kernel.REAL, 'StandInFinder' in found)"
    )
    assert run(code, tmp_path / "site", cwd=tmp_path) == "() True True True False"


def test_only_the_missing_one_is_replaced(tmp_path: Path) -> None:
    for name in ("triton", "torchvision"):
        package = tmp_path / "site" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("REAL = True")
    code = (
        "from tokenflow.sglang import standins\nprint(standins.install(), standins.install())\n"
        "import triton, sgl_kernel, sys\n"
        "print(triton.REAL, hasattr(sgl_kernel, 'silu_and_mul'), hasattr(sgl_kernel, 'fused_experts_cpu'))\n"
        "print(sum(type(finder).__name__ == 'StandInFinder' for finder in sys.meta_path))"
    )
    lines = run(code, tmp_path / "site", cwd=tmp_path).splitlines()
    assert lines == ["('sgl_kernel',) ('sgl_kernel',)", "True False True", "1"]


def test_plain_import_of_the_launcher_changes_nothing(tmp_path: Path) -> None:
    code = (
        "import os, sys\nbefore = (dict(os.environ), list(sys.meta_path))\nimport tokenflow.sglang.launch\n"
        "print(before == (dict(os.environ), list(sys.meta_path)), any(m.startswith('sglang') for m in sys.modules))"
    )
    assert run(code, cwd=tmp_path) == "True False"


def test_launching_a_kernel_raises() -> None:
    @triton.jit
    def kernel(x: int) -> int:
        return x

    assert isinstance(kernel, triton.Kernel)
    for launch_kernel in (kernel, kernel[(1,)]):
        with pytest.raises(StandInError, match="kernel kernel was launched"):
            launch_kernel(1)


@pytest.mark.parametrize(("number", "power"), [(0, 1), (1, 1), (2, 2), (3, 4), (1024, 1024), (1025, 2048)])
def test_host_arithmetic_is_right(number: int, power: int) -> None:
    assert triton.next_power_of_2(number) == power
    assert triton.cdiv(number, 8) == (number + 7) // 8


def test_placeholder_decorates_and_is_false() -> None:
    def function() -> int:
        return 3

    name = Placeholder("triton.language")
    assert name.builtin(function) is function
    assert name.extra.builtin(option=1)(function) is function
    assert not name.anything


def test_slots_are_written_to_their_rows() -> None:
    torch = pytest.importorskip("torch")
    from tokenflow.sglang.standins.sgl_kernel import assign_req_to_token_pool_cpu

    table = torch.zeros(3, 6, dtype=torch.int32)
    assign_req_to_token_pool_cpu(
        torch.tensor([2, 0]), table, torch.tensor([1, 0]), torch.tensor([3, 2]), torch.tensor([7, 8, 9, 10]), 6
    )
    assert table.tolist() == [[9, 10, 0, 0, 0, 0], [0] * 6, [0, 7, 8, 0, 0, 0]]


@pytest.mark.parametrize(
    ("arguments", "gpu", "is_cpu_engine"),
    [
        (["--device", "cpu"], False, True),
        (["--device", "cpu"], True, True),
        (["--device=cpu"], True, True),
        ([], False, True),
        (["--device", "cuda"], True, False),
        ([], True, False),
    ],
)
def test_environment_of_the_engine(arguments: list[str], gpu: bool, is_cpu_engine: bool) -> None:
    environment = launch.engine_environment(arguments, gpu)
    assert (environment.get("SGLANG_USE_CPU_ENGINE") == "1") is is_cpu_engine


def test_offline_only_with_a_local_model(tmp_path: Path) -> None:
    assert launch.engine_environment(["--model-path", str(tmp_path)], True)["HF_HUB_OFFLINE"] == "1"
    assert launch.engine_environment(["--model-path", "organisation/model"], True) == {}


def test_operators_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    launch.set_missing({"HF_HUB_OFFLINE": "1"})
    assert launch.os.environ["HF_HUB_OFFLINE"] == "0"
