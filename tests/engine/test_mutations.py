"""A thousand damaged checkpoints: each one loads, or fails with a sentence that names a file.

No crash, no hang, no memory taken on the word of a damaged header.
"""

import json
import random
import shutil
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.checkpoint.nvfp4 import Style
from engine.checkpoint.special_ids import read_special_ids
from engine.config import CheckpointError
from engine.generate import Engine
from tests.conftest import TINY, write_tokenizer
from tests.engine.nvfp4_checkpoints import packed_tensors, plain_tensors, write

COUNT = 1000
PART = 100
FEW = 117  # every kind of damage to every source, three times
SLOWEST = 20.0  # seconds of one load, on a machine that is busy with other things
LARGEST = 256 << 20  # bytes by which the process may grow; a tiny model takes one of them

Mutation = Callable[[random.Random, Path], None]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A small model: in bf16, and packed by each library's rules; three shards and a tokenizer."""
    import dataclasses

    from engine.checkpoint.write import save_checkpoint
    from engine.model.transformer import LLaDA2Model, initialise

    root = tmp_path_factory.mktemp("sources")
    config = dataclasses.replace(TINY, num_experts=4, n_group=2, hidden_size=32, head_dim=8)
    model = initialise(LLaDA2Model(config), seed=0)
    save_checkpoint(model, root / "whole")
    write_tokenizer(root / "whole")
    ids = {"mask_token_id": 261, "eos_token_id": [257, 258]}
    (root / "whole" / "generation_config.json").write_text(json.dumps(ids))
    plain = plain_tensors(root / "whole")
    folders = [write(root / "plain", root / "whole", plain, None, shards=3)]
    styles: list[Style] = ["modelopt", "compressed-tensors"]
    for style in styles:
        tensors, _ = packed_tensors(plain, style, inputs=True)
        folders.append(write(root / style, root / "whole", tensors, style, shards=3))
    assert torch.equal(plain["model.norm.weight"], torch.ones(32, dtype=torch.bfloat16))
    return folders


def shard(rng: random.Random, folder: Path) -> Path:
    return rng.choice(sorted(folder.glob("*.safetensors")))


def header_of(file: Path) -> tuple[dict[str, Any], bytes]:
    content = file.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def set_header(file: Path, header: object, data: bytes) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)


def flip_bytes_anywhere(rng: random.Random, folder: Path) -> None:
    file = rng.choice(sorted(p for p in folder.iterdir() if p.is_file()))
    content = bytearray(file.read_bytes())
    for _ in range(rng.choice([1, 1, 2, 16])):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(content)


def flip_bytes_of_a_header(rng: random.Random, folder: Path) -> None:
    file = shard(rng, folder)
    content = bytearray(file.read_bytes())
    length = struct.unpack("<Q", content[:8])[0]
    for _ in range(rng.choice([1, 1, 3])):
        content[rng.randrange(8 + length)] = rng.randrange(256)
    file.write_bytes(content)


def set_header_length(rng: random.Random, folder: Path) -> None:
    file = shard(rng, folder)
    content = file.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    new = rng.choice([0, 1, length - 1, length + 1, len(content), 1 << 31, 1 << 40, (1 << 64) - 1])
    file.write_bytes(struct.pack("<Q", new) + content[8:])


def cut_or_extend(rng: random.Random, folder: Path) -> None:
    file = rng.choice(sorted(p for p in folder.iterdir() if p.is_file()))
    content = file.read_bytes()
    kept = rng.choice([0, 1, 7, 8, 9, rng.randrange(len(content)), len(content) - 1])
    file.write_bytes(rng.choice([content[:kept], content + b"\0" * rng.randrange(1, 99)]))


def swap_shards(rng: random.Random, folder: Path) -> None:
    first, second = rng.sample(sorted(folder.glob("*.safetensors")), 2)
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    if rng.random() < 0.5:
        second.write_bytes(content)


def remove_or_replace_a_file(rng: random.Random, folder: Path) -> None:
    file = rng.choice(sorted(p for p in folder.iterdir() if p.is_file()))
    file.unlink()
    if rng.random() < 0.3:
        file.mkdir()


def change_the_index(rng: random.Random, folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    data = json.loads(index.read_text())
    weights = data["weight_map"]
    name = rng.choice(sorted(weights))
    bad = ["../x", "/etc/passwd", "", ".", "..", "\0", "a\0b", "x" * 5000, "\ud800", 7, None, [1],
           {"a": 1}, "config.json", "model-0.safetensors", "nothing.safetensors"]  # fmt: skip
    weights[name] = rng.choice(bad)
    if rng.random() < 0.2:
        data["weight_map"] = rng.choice([{}, [], None, 3, "x", {"a": "b"}])
    index.write_text(json.dumps(data))


def change_a_tensor(rng: random.Random, folder: Path) -> None:
    """Absurd shapes, places, kinds and names."""
    file = shard(rng, folder)
    header, data = header_of(file)
    name = rng.choice([n for n in header if n != "__metadata__"])
    entry = header[name]
    huge = [1 << 20, 1 << 31, 1 << 40, 1 << 62, 1 << 64, 10**30, -1, 0, 1.5, "7", None, True]
    kind = rng.randrange(6)
    if kind == 0:
        entry["shape"] = [rng.choice(huge) for _ in range(rng.choice([0, 1, 2, 3, 9, 40]))]
    elif kind == 1:
        entry["data_offsets"] = [rng.choice([0, 5, *huge]) for _ in range(rng.choice([1, 2, 2, 3]))]
    elif kind == 2:
        kinds = ["F64", "I8", "I32", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "F6_E2M3", "BOOL",
                 "", "X", 3, None, ["F32"]]  # fmt: skip
        entry["dtype"] = rng.choice(kinds)
    elif kind == 3:
        renamed = rng.choice(["", "x", name + "x", "__metadata__", "a" * 10_000, name.upper()])
        header[renamed] = header.pop(name)
    elif kind == 4:
        header[name] = rng.choice([None, 3, [], {}, "x", {"dtype": "F32"}])
    else:
        other = rng.choice([n for n in header if n != "__metadata__"])
        header[name], header[other] = header[other], header[name]
    set_header(file, header, data)


def write_a_foreign_header(rng: random.Random, folder: Path) -> None:
    file = shard(rng, folder)
    header, data = header_of(file)
    text = json.dumps(header)
    name = json.dumps(rng.choice([n for n in header if n != "__metadata__"]))
    texts = [
        b"", b"{}", b"[]", b"null", b"[" * 50_000, b"\xff\xfe", b'{"a": ' + b"9" * 9000 + b"}",
        text.replace("{", "{" + name + ": 1, ", 1).encode(),  # a name twice
        (text[:-1] + ', "extra": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}').encode(),
        text.replace('"shape": [', '"shape": [' + "1, " * 2000, 1).encode(),
        text.encode().replace(b"model", b"mod\\u0000l", 1),
    ]  # fmt: skip
    set_header(file, rng.choice(texts), data)


def repeat_a_tensor(rng: random.Random, folder: Path) -> None:
    files = sorted(folder.glob("*.safetensors"))
    name = rng.choice(["other.safetensors", files[0].name])
    shutil.copy(rng.choice(files[1:]), folder / name)
    if rng.random() < 0.7:
        (folder / "model.safetensors.index.json").unlink()


def change_a_config(rng: random.Random, folder: Path) -> None:
    names = ["config.json", "generation_config.json", "tokenizer_config.json"]
    if (folder / "hf_quant_config.json").exists():
        names.append("hf_quant_config.json")
    file = folder / rng.choice(names)
    data = json.loads(file.read_text())
    at = data
    while True:
        key = rng.choice(sorted(at))
        if isinstance(at[key], dict) and at[key] and rng.random() < 0.8:
            at = at[key]
            continue
        break
    values = [None, -1, 0, 1, 3, 1 << 20, 1 << 24, 1 << 62, 10**400, 0.5, float("nan"), "", "x",
              [], [1], {}, {"a": 1}, True, False, "\ud800"]  # fmt: skip
    at[key] = rng.choice(values)
    if rng.random() < 0.1:
        del at[key]
    file.write_text(json.dumps(data))


def add_tensors(rng: random.Random, folder: Path) -> None:
    """Strays: what might be an adapter, or give another method away."""
    file = shard(rng, folder)
    header, data = header_of(file)
    stem = "model.layers.1.attention.dense"
    names = ["stray", "residual_adapter.gate_proj.weight", "residual_adapter.x", f"{stem}.k_scale",
             f"{stem}.pre_quant_scale", f"{stem}.weight_scale", f"{stem}.weight_packed",
             "model.layers.1.mlp.experts.gate_up_proj", "model.layers.1.mlp.w1",
             "model.layers.99.x.weight", "model.layers.1.mlp.experts.999999.x"]  # fmt: skip
    dtype = rng.choice(["F32", "U8", "BF16", "F8_E4M3"])
    size = {"F32": 4, "U8": 1, "BF16": 2, "F8_E4M3": 1}[dtype]
    shape = rng.choice([[], [1], [32], [32, 32], [16, 32], [4, 64, 32], [0, 1 << 40]])
    count = size
    for n in shape:
        count *= n
    place = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + count]}
    header[rng.choice(names)] = place
    set_header(file, header, data + bytes(rng.randrange(256) for _ in range(count)))
    index = folder / "model.safetensors.index.json"
    if rng.random() < 0.5:
        index.unlink()


def add_a_map(rng: random.Random, folder: Path) -> None:
    texts = ["", "[", 'form = "linear"', 'form = "linear"\n[tensors]\ndown = "model.norm.weight"',
             "[tensors]\nx = 1", "a = " + "[" * 9000, 'unused = ["model.norm.weight"]']  # fmt: skip
    (folder / "residual_map.toml").write_text(rng.choice(texts))


MUTATIONS: list[Mutation] = [
    flip_bytes_anywhere,
    flip_bytes_of_a_header,
    set_header_length,
    cut_or_extend,
    swap_shards,
    remove_or_replace_a_file,
    change_the_index,
    change_a_tensor,
    write_a_foreign_header,
    repeat_a_tensor,
    change_a_config,
    add_tensors,
    add_a_map,
]


def resident() -> int:
    psutil = pytest.importorskip("psutil")
    return psutil.Process().memory_info().rss


@contextmanager
def bounded() -> Iterator[None]:
    """Inside, no allocation of LARGEST bytes succeeds, even one that is never touched."""
    resource = pytest.importorskip("resource")
    psutil = pytest.importorskip("psutil")
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = psutil.Process().memory_info().vms + LARGEST
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def names_a_file(said: str, folder: Path) -> bool:
    """Whether the sentence says where to look: the checkpoint, and which of its files."""
    kinds = (".safetensors", ".json", ".jinja", ".toml")
    return str(folder) in said and any(kind in said for kind in kinds)


def load_damaged(sources: list[Path], tmp_path: Path, numbers: range) -> float:
    """Damage and load each of `numbers`; which share of them was refused. Fails for any other end
    than a load or a CheckpointError that names a file."""
    begun = resident()
    refused, wrong = 0, []
    for number in numbers:
        rng = random.Random(number)
        mutation = MUTATIONS[number % len(MUTATIONS)]
        folder = tmp_path / str(number)
        shutil.copytree(sources[number % 3], folder)
        mutation(rng, folder)
        told = f"{mutation.__name__} {number}"
        begin = time.perf_counter()
        try:
            with bounded():
                Engine.load(folder, device="cpu")
        except CheckpointError as error:
            refused += 1
            if not names_a_file(str(error), folder) or len(str(error)) > 5000:
                wrong.append(f"{told}: {str(error)[:500]}")
        except BaseException as error:
            wrong.append(f"{told}: {type(error).__name__}: {error}")
        assert time.perf_counter() - begin < SLOWEST, told
        assert resident() - begun < LARGEST, told
        shutil.rmtree(folder)
    assert not wrong
    return refused / len(numbers)


# Some damage does no harm (a flipped bit of a weight, a file that is not needed), most does.


def test_damage_is_found_or_harmless(sources: list[Path], tmp_path: Path) -> None:
    assert 0.5 <= load_damaged(sources, tmp_path, range(FEW)) < 1


@pytest.mark.slow
@pytest.mark.parametrize("part", range(COUNT // PART))
def test_damage_is_found_or_harmless_a_thousand_times(
    sources: list[Path], tmp_path: Path, part: int
) -> None:
    numbers = range(part * PART, (part + 1) * PART)
    assert 0.5 <= load_damaged(sources, tmp_path, numbers) < 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts address space")
def test_a_large_allocation_would_be_noticed() -> None:
    with bounded(), pytest.raises(RuntimeError, match="memory"):
        torch.empty(LARGEST + (64 << 20), dtype=torch.uint8)


def test_undamaged_they_load(sources: list[Path]) -> None:
    for folder in sources:
        engine = Engine.load(folder, device="cpu")
        assert (engine.mask_id, engine.stop_ids) == (261, (257, 258))
        assert read_special_ids(folder, 272) == (261, (257, 258))
