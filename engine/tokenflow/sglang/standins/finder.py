"""Puts the stand-ins where Python's import looks last."""

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from tokenflow.sglang.standins import sgl_kernel, torchvision, triton
from tokenflow.sglang.standins.placeholder import StandIn

_STAND_INS: dict[str, StandIn] = {
    stand_in.package: stand_in for stand_in in (triton.STAND_IN, torchvision.STAND_IN, sgl_kernel.STAND_IN)
}


class StandInModule(ModuleType):
    """A module of a stand-in; attributes beyond the fixed ones come from its package's fallback."""

    def __init__(self, name: str, stand_in: StandIn) -> None:
        super().__init__(name, f"Stand-in for {name}, which is not installed.")
        self.__path__: list[str] = []
        self.__file__ = __file__
        self.__dict__.update(stand_in.modules[name])
        self._stand_in = stand_in

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        submodule = f"{self.__name__}.{name}"
        if submodule in self._stand_in.modules:  # `from package import module` asks for the attribute first
            return importlib.import_module(submodule)
        value = self._stand_in.fallback(self.__name__, name)
        setattr(self, name, value)  # one object a name: identity and isinstance checks hold
        return value


class StandInFinder(MetaPathFinder, Loader):
    """Finds the modules of `packages`, and only those that their stand-ins list."""

    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = tuple(packages)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = fullname.partition(".")[0]
        if package not in self.packages or fullname not in _STAND_INS[package].modules:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StandInModule(spec.name, _STAND_INS[spec.name.partition(".")[0]])

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run: the module is complete when it is made."""


def missing_packages() -> tuple[str, ...]:
    """The packages that a stand-in would replace in this process: known ones that cannot be imported."""
    with_finder = sys.meta_path
    sys.meta_path = [finder for finder in with_finder if not isinstance(finder, StandInFinder)]
    try:
        return tuple(name for name in _STAND_INS if not _is_present(name))
    finally:
        sys.meta_path = with_finder


def _is_present(package: str) -> bool:
    loaded = sys.modules.get(package)
    if loaded is not None:
        return not isinstance(loaded, StandInModule)
    return importlib.util.find_spec(package) is not None


def install() -> tuple[str, ...]:
    """Makes the missing packages importable in this process and returns their names. Calling it again is harmless.

    It must run before anything of SGLang is imported. The finder stands last, so a real package always wins.
    """
    packages = missing_packages()
    if "triton" in packages:
        _let_torch_see_for_itself()
    if packages and not any(isinstance(finder, StandInFinder) for finder in sys.meta_path):
        sys.meta_path.append(StandInFinder(packages))
    return packages


def _let_torch_see_for_itself() -> None:
    """Has torch look for triton while it is still missing; it keeps the answer for the life of the process.

    Torch's compiler has a way of its own without triton. Were it to find the stand-in it would ask it for far more
    than SGLang does. With a torch older or newer than the pinned one these modules may be elsewhere: then it asks.
    """
    with contextlib.suppress(ImportError):
        importlib.import_module("torch._inductor.runtime.triton_compat")
        importlib.import_module("torch.utils._triton").has_triton_package()
