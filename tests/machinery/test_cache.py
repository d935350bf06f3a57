"""The cache folder: used only if it is ours alone; no update of the tuner is lost; settings."""

import logging
import multiprocessing
import os

import pytest

import rpukit as rk
from rpukit import _cache
from rpukit._kernels import tune
from rpukit._kernels.times import Store
from rpukit.errors import ParameterError
from tests.on_cpu import store

posix = pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RPUKIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(_cache, "_told", set())
    return tmp_path / "cache"


# ---- whose it is -------------------------------------------------------------------------------


@posix
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777, 0o702])
def test_a_folder_that_others_may_write_to_is_not_used(folder, caplog, mode):
    assert _cache.write("a.cubin", b"code")
    folder.chmod(mode)
    with caplog.at_level(logging.WARNING, "rpukit"):
        for _ in range(2):
            assert _cache.read("a.cubin") is None
            assert _cache.write("b.cubin", b"code") is None
            assert _cache.private("cpu", "stamp", make=True, keep=3) is None
    assert caplog.text.count("is not used: it has to be yours") == 1
    assert str(folder) in caplog.text and "chmod go-w" in caplog.text
    folder.chmod(0o755)
    assert _cache.read("a.cubin") == b"code"
    assert os.listdir(folder) == ["a.cubin"]


@posix
def test_a_folder_or_a_file_of_somebody_else_is_not_used(folder, caplog, monkeypatch):
    assert _cache.write("a.cubin", b"code")
    (folder / "a.cubin").chmod(0o666)
    with caplog.at_level(logging.WARNING, "rpukit"):
        assert _cache.read("a.cubin") is None
    assert "a.cubin is not used" in caplog.text
    (folder / "a.cubin").chmod(0o600)
    assert _cache.read("a.cubin") == b"code"
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    assert _cache.read("a.cubin") is None
    assert _cache.private("cpu", "stamp", make=False, keep=3) is None


@posix
def test_new_folders_are_for_their_owner_alone(folder, tmp_path, monkeypatch):
    old = os.umask(0)
    try:
        _cache.write("a.cubin", b"code")
    finally:
        os.umask(old)
    assert folder.stat().st_mode & 0o777 == 0o700
    # The usual folder, made by an earlier version under an umask of 002
    monkeypatch.delenv("RPUKIT_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "rpukit").mkdir(mode=0o700)
    (tmp_path / "rpukit").chmod(0o775)
    assert _cache.write("a.cubin", b"code")
    assert (tmp_path / "rpukit").stat().st_mode & 0o777 == 0o755


@posix
def test_kernels_of_the_runner_are_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("RPUKIT_ON_CPU_CACHE", str(tmp_path / "own"))
    assert store.folder() == tmp_path / "own"
    (tmp_path / "own").chmod(0o777)
    with pytest.raises(PermissionError, match="others may write"):
        store.folder()


# ---- the tuner's file --------------------------------------------------------------------------


def tune_some(process, n):
    own = Store("device", "tune.json")
    for k in range(n):
        record = own.record(f"kernel{process}", "1", (process, k), 8)
        record.times = {"plain": 1.0 + k}
        own.save(record)


def test_no_update_of_processes_that_write_at_once_is_lost(folder):
    context = multiprocessing.get_context("fork")
    n_process, n = 4, 12
    processes = [context.Process(target=tune_some, args=(k, n)) for k in range(n_process)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    found = {(r.kernel, r.key): r.times for r in Store("device", "tune.json").records()}
    assert len(found) == n_process * n
    assert found["kernel2", "(2, 5)"] == {"plain": 6.0}


def test_a_lock_is_not_waited_for_without_end(folder, monkeypatch):
    monkeypatch.setattr(_cache, "_PATIENCE", 0.01)
    with _cache.locked("tune.json"), _cache.locked("tune.json"):
        assert _cache.write("tune.json", b"{}")


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "[" * 5000, "{", '{"format": 1}', "\xff", "1" * 5000),
        '{"format": 1, "device": "device", "records": [{}], "rejected": []}',
        '{"format": 1, "device": "device", "records": [{"kernel": "k", "version": "1", '
        '"key": "()", "batch": 1, "times": {"a": NaN}}], "rejected": []}',
        '{"format": 1, "device": "device", "records": [], "rejected": [["a"]]}',
    ],
)
def test_a_damaged_file_is_told_and_replaced(folder, caplog, text):
    _cache.write("tune.json", text.encode("latin-1"))
    with caplog.at_level(logging.WARNING, "rpukit"):
        tune_some(0, 1)
    assert "times of the tuner are not readable" in caplog.text
    assert len(Store("device", "tune.json").records()) == 1


# ---- settings from the environment -------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["²", "٣", "-1", "0", "0x2", "1.0", "two", " ", "1" * 5000, "5000"]
)
def test_a_number_of_threads_that_is_none(monkeypatch, text):
    monkeypatch.setenv("RPUKIT_NUM_THREADS", text)
    with pytest.raises(ParameterError, match="RPUKIT_NUM_THREADS: got .*, need a number from 1"):
        rk.get_num_threads()


def test_numbers_of_threads(monkeypatch):
    monkeypatch.setenv("RPUKIT_NUM_THREADS", "3")
    assert rk.get_num_threads() == 3
    monkeypatch.setenv("RPUKIT_NUM_THREADS", "")
    assert rk.get_num_threads() >= 1


@pytest.mark.parametrize("name", ["RPUKIT_TUNE", "RPUKIT_TUNE_VERIFY"])
def test_switches_are_0_or_1(monkeypatch, name):
    asked = {"RPUKIT_TUNE": tune.enabled, "RPUKIT_TUNE_VERIFY": tune._verifying}[name]
    for text, value in (("0", False), ("1", True), ("", name == "RPUKIT_TUNE")):
        monkeypatch.setenv(name, text)
        assert asked() is value
    for text in ("off", "2", "²", "false"):
        monkeypatch.setenv(name, text)
        with pytest.raises(ParameterError, match=f"{name}: got '{text}', need 0 or 1"):
            asked()


def test_a_cache_folder_of_no_user(monkeypatch, caplog):
    monkeypatch.setattr(_cache, "_told", set())
    monkeypatch.setenv("RPUKIT_CACHE_DIR", "~nobody-of-this-name/cache")
    with caplog.at_level(logging.WARNING, "rpukit"):
        assert _cache.write("a", b"1") is None
        assert _cache.read("a") is None
    assert caplog.text.count("is not used") == 1
    monkeypatch.delenv("RPUKIT_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/folder")  # to be ignored, by its specification
    assert _cache.folder().is_absolute()
