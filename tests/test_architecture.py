"""The arrows of docs/architecture.md: who may import whom."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "tokenflow": ROOT / "engine/tokenflow",
    "tokenflowd": ROOT / "daemon/tokenflowd",
    "tfctl": ROOT / "tfctl/tfctl",
    "tokenflow_tui": ROOT / "tui/tokenflow_tui",
}
LIGHT = {"tokenflow.wire", "tokenflow.errors", "tokenflow.locations", "tokenflow.version", "tokenflow.policy.states"}


def imports_of(path: Path, top_level_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def files_of(folder: Path) -> list[Path]:
    files = sorted(folder.rglob("*.py"))
    assert files, f"nothing to check in {folder}"
    return files


def is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def offenders(folder: Path, *packages: str) -> list[str]:
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files_of(folder)
        for name in sorted(imports_of(path))
        if any(is_in(name, package) for package in packages)
    ]


def test_the_policy_is_pure():
    impure = ("time", "datetime", "asyncio", "socket", "random", "os", "pathlib", "torch", "sglang", "zmq", "logging")
    assert offenders(PACKAGES["tokenflow"] / "policy", *impure) == []
    for path in files_of(PACKAGES["tokenflow"] / "policy"):
        ours = {name for name in imports_of(path) if is_in(name, "tokenflow")}
        assert all(is_in(name, "tokenflow.policy") for name in ours), f"{path}: {ours}"


def test_only_the_engine_side_imports_sglang_and_never_at_the_top_of_a_file():
    for package, folder in PACKAGES.items():
        for path in files_of(folder):
            is_engine_side = package == "tokenflow" and path.is_relative_to(folder / "sglang")
            if not is_engine_side:
                names = imports_of(path)
                assert not any(is_in(name, "sglang") for name in names), path
            top = imports_of(path, top_level_only=True)
            assert not any(is_in(name, "sglang") or is_in(name, "torch") for name in top), path


def test_the_simulator_knows_the_policy_and_no_engine():
    packages = ("tokenflow.sglang", "tokenflow.link", "tokenflowd", "tfctl", "tokenflow_tui", "rich", "typer")
    assert offenders(PACKAGES["tokenflow"] / "sim", *packages) == []


def test_clients_know_documents_not_the_daemon_or_the_engine():
    for package in ("tfctl", "tokenflow_tui"):
        assert offenders(PACKAGES[package], "tokenflowd", "tokenflow.sglang", "tokenflow.link") == []


def test_the_daemon_knows_no_clients_and_no_engine_side():
    assert offenders(PACKAGES["tokenflowd"], "tfctl", "tokenflow_tui", "tokenflow.sglang", "tokenflow.loadgen") == []


def test_the_engine_packages_know_no_daemon_and_no_clients():
    # The demo is a newcomer's first command: it runs tfctl as a program, and does not import it.
    assert offenders(PACKAGES["tokenflow"], "tokenflowd", "tfctl", "tokenflow_tui") == []


@pytest.mark.parametrize("module", sorted(LIGHT))
def test_what_every_command_loads_is_light(module):
    heavy = ("numpy", "pydantic", "zmq", "aiohttp", "rich", "typer", "textual", "asyncio")
    code = f"import sys, {module}; print([m for m in {heavy!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_the_plugin_is_inert_without_a_link():
    code = (
        "import os, sys; os.environ.pop('TOKENFLOW_LINK', None)\n"
        "from tokenflow.sglang.plugin import register; register()\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('sglang', 'torch', 'zmq')])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_tests_share_helpers_not_test_modules():
    """Two test modules may have one name, and an import then finds either; those of tests/support are unique."""
    tests = files_of(ROOT / "tests")
    borrowed = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in tests
        for name in sorted(imports_of(path))
        if name.split(".")[0].startswith("test_") or name.split(".")[0] == "conftest"
    ]
    assert borrowed == []
    helpers = [path.stem for path in tests if path.parent.name == "support"]
    assert len(helpers) == len(set(helpers))
    outside = {path.stem for path in tests if path.parent.name != "support"}
    assert outside.isdisjoint(helpers)
