from types import SimpleNamespace

from tokenflow.sglang import compat
from tokenflow.sglang.compat import HookTarget, find_mismatch, find_missing_attributes, find_unhooked


def fits(self, batch):
    pass


TARGET = HookTarget("module.fits", ("self", "batch"))


def resolve(path):
    if path != TARGET.path:
        raise AttributeError(path)
    return fits


def test_all_fits():
    assert find_mismatch([TARGET], version=compat.SUPPORTED_VERSION, resolve=resolve) is None


def test_another_version_is_a_mismatch_that_names_both():
    problem = find_mismatch([TARGET], version="0.5.24", resolve=resolve)
    assert problem is not None
    assert "0.5.24" in problem
    assert compat.SUPPORTED_VERSION in problem


def test_a_changed_signature_is_a_mismatch():
    changed = HookTarget("module.fits", ("self", "batch", "result"))
    problem = find_mismatch([changed], version=compat.SUPPORTED_VERSION, resolve=resolve)
    assert problem == "module.fits takes (self, batch), expected (self, batch, result)"


def test_a_missing_function_is_a_mismatch():
    gone = HookTarget("module.gone", ("self",))
    problem = find_mismatch([gone], version=compat.SUPPORTED_VERSION, resolve=resolve)
    assert problem is not None
    assert "module.gone is missing" in problem


def test_a_hook_that_did_not_apply_is_found():
    assert find_unhooked([TARGET], {"module.other"}) == ["module.fits"]
    assert find_unhooked([TARGET], {"module.fits"}) == []


def test_a_scheduler_without_what_we_read_is_found():
    assert find_missing_attributes(object()) is not None


def test_a_radix_tree_without_what_we_call_is_found():
    names = dict.fromkeys(compat.SCHEDULER_ATTRIBUTES)
    tree = SimpleNamespace(**dict.fromkeys(compat.TREE_ATTRIBUTES))
    scheduler = SimpleNamespace(**names | {"tree_cache": tree})
    assert find_missing_attributes(scheduler) is None, "another kind of tree: that blocks enforcing and nothing else"
    tree.tree_core = SimpleNamespace(**dict.fromkeys(compat.TREE_CORE_ATTRIBUTES))
    assert find_missing_attributes(scheduler) is None
    del tree.tree_core.is_backuped
    assert "is_backuped" in find_missing_attributes(scheduler)
