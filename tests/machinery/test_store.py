"""The store of what compilers made: once for each content, whole or not at all."""

import multiprocessing
import os
import time

import pytest

from tests.on_cpu import store


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("RPUKIT_ON_CPU_CACHE", str(tmp_path / "store"))
    return tmp_path / "store"


def slowly(path):
    time.sleep(0.2)
    path.write_text(str(os.getpid()))
    with open(path.parent / "calls", "a") as file:
        file.write("x")


def ask(answers):
    answers.put(store.kept("thing.so", slowly).read_text())


def test_of_four_processes_one_makes_and_the_others_wait(folder):
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    processes = [context.Process(target=ask, args=(answers,)) for _ in range(4)]
    for process in processes:
        process.start()
    found = {answers.get(timeout=60) for _ in processes}
    for process in processes:
        process.join()
    assert len(found) == 1
    assert (folder / "calls").read_text() == "x"
    assert sorted(path.name for path in folder.iterdir()) == ["calls", "thing.so"]


def test_a_failure_leaves_nothing(folder):
    def fail(path):
        path.write_text("half")
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        store.kept("a/thing.so", fail)
    assert list((folder / "a").iterdir()) == []
    assert store.kept("a/thing.so", slowly).read_text() == str(os.getpid())


def test_keys_tell_texts_apart():
    assert store.key_of("ab", "c") != store.key_of("a", "bc")
    assert store.key_of("ab", "c") == store.key_of("ab", "c")


def test_files_not_used_for_a_month_go(folder):
    old, used, new = (store.kept(f"{name}.so", slowly) for name in ("old", "used", "new"))
    for path in (old, used):
        os.utime(path, (time.time() - 2 * store.MONTH,) * 2)
    store.kept("used.so", slowly)
    store.prune()
    assert not old.exists()
    assert used.exists()
    assert new.exists()
