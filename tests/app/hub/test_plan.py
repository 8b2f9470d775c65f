"""What is wanted, what a hash is, what is recorded and when a model is ready."""

import errno
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.hub import cache as cache_module
from app.hub.cache import RepoCache, free_bytes
from app.hub.checking import is_good
from app.hub.control import Control
from app.hub.faults import Asked, FailureError, no_space
from app.hub.files import Workshop
from app.hub.limits import Limits
from app.hub.manifest import Manifest, cached, known, manifests, unfinished
from app.hub.plan import KNOWN, Plan, PlannedFile, check_names, is_wanted, require_whole_index
from app.hub.progress import Tally
from tests.app.hub.hub_server import git_hash, sha256

COMMIT, OTHER = "a" * 40, "b" * 40
ASKED = Asked("o/n", "main", "https://huggingface.co")


def planned(**bodies: bytes) -> tuple[PlannedFile, ...]:
    return tuple(PlannedFile(name, len(body), sha256(body)) for name, body in bodies.items())


# --- what is fetched ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
        "special_tokens_map.json", "chat_template.jinja", "vocab.json", "merges.txt",
        "tokenizer.model", "model.safetensors", "model-00001-of-00003.safetensors",
        "model.safetensors.index.json", "hf_quant_config.json", "README.md", "LICENSE",
        "License.txt", "NOTICE", "residual_adapter.safetensors",
    ],
)  # fmt: skip
def test_what_the_engine_reads_is_wanted(path: str) -> None:
    assert is_wanted(path, 1000)


@pytest.mark.parametrize(
    "path",
    [
        "modeling_llada2_moe.py", "configuration.py", "pytorch_model.bin", "model.pt", "x.pth",
        "model.gguf", ".gitattributes", "figures/x.png", "logo.png", "onnx/model.onnx", "run.sh",
        "readme.py", "license.so", "sub/config.json", "../config.json", "/etc/config.json",
        "a\\b.json", "..", "", "a\nb.json", "a\0.json",
    ],
)  # fmt: skip
def test_code_pickles_and_strange_paths_are_not(path: str) -> None:
    assert not is_wanted(path, 1000)


def test_nor_is_what_is_far_too_large() -> None:
    assert not is_wanted("README.md", 5 << 20)
    assert not is_wanted("data.json", 1 << 30)
    assert is_wanted("model.safetensors", 1 << 40)


def test_known_repositories_are_names() -> None:
    for repo in KNOWN:
        check_names(repo, "main")
    check_names("o/n", "refs/pr/1")
    check_names("o/n", COMMIT)
    for repo, revision in [("o", "main"), ("o/..", "x"), ("o/a--b", "x"), ("o/n", "/x")]:
        with pytest.raises(FailureError):
            check_names(repo, revision)


def test_small_files_come_first() -> None:
    sizes = {"b.safetensors": 1 << 30, "a.safetensors": 1 << 30, "z.json": 5}
    files = tuple(PlannedFile(name, size, "0" * 64) for name, size in sizes.items())
    names = [file.path for file in Plan("o/n", "main", COMMIT, files).in_order()]
    assert names == ["z.json", "a.safetensors", "b.safetensors"]


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": 3}', '{"weight_map": [1]}'])
def test_an_index_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "index").write_text(text)
    with pytest.raises(FailureError, match="is no index"):
        require_whole_index(Plan("o/n", "main", COMMIT, ()), tmp_path / "index")


# --- hashes -------------------------------------------------------------------------------------


def test_both_hashes(tmp_path: Path) -> None:
    body = os.urandom(3 << 20)
    path = tmp_path / "x"
    path.write_bytes(body)
    seen: list[int] = []
    assert is_good(path, PlannedFile("x", len(body), sha256(body)), seen.append)
    assert seen == [1 << 20, 2 << 20, 3 << 20]
    assert is_good(path, PlannedFile("x", len(body), None, git_hash(body)), seen.append)
    assert not is_good(path, PlannedFile("x", len(body), "0" * 64), seen.append)
    assert not is_good(path, PlannedFile("x", len(body) + 1, sha256(body)), seen.append)


# --- what is kept -------------------------------------------------------------------------------


@pytest.fixture
def snapshot(tmp_path: Path) -> Manifest:
    """Two files in a cache, checked and linked."""
    bodies = {"config.json": b"{}", "model.safetensors": b"weights"}
    files = planned(**bodies)
    cache = RepoCache("o/n")
    cache.prepare()
    manifest = Manifest.of(Plan("o/n", "main", COMMIT, files))
    for file in files:
        cache.blob(file).write_bytes(bodies[file.path])
        cache.link(file, COMMIT)
        manifest = manifest.with_checked(file, cache.blob(file))
    return manifest


def test_a_manifest_comes_back_as_it_was(snapshot: Manifest) -> None:
    snapshot.save()
    assert Manifest.load(snapshot.path) == snapshot
    assert list(manifests()) == list(manifests("o/n")) == [snapshot]
    assert not list(manifests("o/other"))
    assert unfinished("o/n", "main") == unfinished("o/n", COMMIT) == snapshot
    assert cached("o/n") is None, "not finished"


def finished(manifest: Manifest) -> Manifest:
    done = replace(manifest, finished=time.time())
    done.save()
    return done


def test_ready_is_every_file_checked_and_untouched(snapshot: Manifest) -> None:
    folder = RepoCache("o/n").snapshot(COMMIT)
    finished(snapshot)
    assert cached("o/n") == cached("o/n", "main") == cached("o/n", COMMIT) == folder
    assert cached("o/n", "v1") is None
    assert cached("o/other") is None
    assert unfinished("o/n", "main") is None
    finished(snapshot.without(snapshot.plan.files[0]))
    assert cached("o/n") is None
    finished(snapshot)
    os.utime((folder / "config.json").resolve(), (0, 0))
    assert cached("o/n") is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "{}", '{"format": 1}', '{"format": 1, "files": 3}', "\xff"]
)
def test_a_manifest_that_is_damaged_is_none(snapshot: Manifest, text: str) -> None:
    finished(snapshot)
    snapshot.path.write_text(text, encoding="latin-1")
    assert cached("o/n") is None
    assert not list(manifests())
    assert Manifest.of(snapshot.plan).checked == {}


def test_what_is_known_of_a_commit_is_kept_when_it_is_planned_again(snapshot: Manifest) -> None:
    finished(snapshot)
    again = Manifest.of(Plan("o/n", COMMIT, COMMIT, snapshot.plan.files))
    assert again.checked == snapshot.checked
    assert set(again.revisions) == {"main", COMMIT}
    other = Manifest.of(Plan("o/n", "main", COMMIT, snapshot.plan.files[:1]))
    assert other.checked == {}, "another list of files is another plan"


def test_of_two_that_were_main_the_later_counts(snapshot: Manifest) -> None:
    finished(replace(snapshot, revisions={"main": 1.0}))
    cache, plan = RepoCache("o/n"), Plan("o/n", "main", OTHER, snapshot.plan.files)
    for file in plan.files:
        cache.link(file, OTHER)
    finished(replace(snapshot, plan=plan, revisions={"main": 2.0}))
    assert [one.plan.commit for one in known("o/n", "main")] == [OTHER, COMMIT]
    assert cached("o/n") == cache.snapshot(OTHER)
    (cache.snapshot(OTHER) / "config.json").unlink()
    assert cached("o/n") == cache.snapshot(COMMIT)


def test_a_cache_without_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Manifest
) -> None:
    """exFAT: the content itself stands in the snapshot."""

    def refuse(*_: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(cache_module.os, "symlink", refuse)
    cache, file = RepoCache("o/n"), snapshot.plan.files[0]
    cache.link(file, OTHER)
    place = cache.snapshot(OTHER) / file.path
    assert place.is_file()
    assert not place.is_symlink()
    assert cache.find(file, OTHER) == place
    cache.link(file, OTHER)
    assert cache.find(file, OTHER) == place


def test_free_space_is_that_of_the_nearest_folder(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "a" / "b") > 0


def test_the_lock_is_the_one_that_huggingface_hub_takes(snapshot: Manifest) -> None:
    from huggingface_hub.utils import WeakFileLock

    cache, file = RepoCache("o/n"), snapshot.plan.files[0]
    with WeakFileLock(cache.locks / f"{file.blob}.lock"), cache.lock(file) as mine:
        assert not mine
    with cache.lock(file) as mine, cache.lock(file) as again:
        assert mine
        assert not again


def test_the_engine_s_folder_holds_no_leftovers(snapshot: Manifest) -> None:
    folder = RepoCache("o/n").snapshot(COMMIT)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    shutil.rmtree(folder)
    assert cached("o/n") is None


# --- room on the disk ---------------------------------------------------------------------------


def workshop(files: tuple[PlannedFile, ...], free: int, margin: int = 0) -> Workshop:
    return Workshop(
        plan=Plan("o/n", "main", COMMIT, files),
        cache=RepoCache("o/n"),
        tally=Tally(files),
        asked=ASKED,
        headers={},
        limits=Limits(margin=margin),
        control=Control(),
        emit=lambda event: None,
        free=lambda path: free,
    )


def test_only_what_is_missing_needs_room() -> None:
    files = planned(**{"a.safetensors": b"x" * 1000, "b.safetensors": b"y" * 1000})
    cache = RepoCache("o/n")
    cache.prepare()
    cache.part(files[0]).write_bytes(b"x" * 900)
    shop = workshop(files, free=1100)
    assert shop.need(list(files)) == 1100
    shop.require_space(list(files))
    with pytest.raises(FailureError) as caught:
        workshop(files, free=1099).require_space(list(files))
    assert caught.value.failure.counts == {"need": 1100, "free": 1099, "missing": 1}
    with pytest.raises(FailureError):
        workshop(files, free=1100, margin=1).require_space(list(files))
    workshop(files, free=0, margin=100).require_space([])


def test_the_sentence_about_room() -> None:
    failure = no_space("/c", 11_400_000_000, 2_000_000_000)
    assert failure.message == "11.4 GB more are needed in /c, and 2.0 GB are free."
    assert failure.hint.startswith("Free 9.4 GB (or set HF_HUB_CACHE")
