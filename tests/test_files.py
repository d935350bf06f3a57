"""Files: written whole or not at all, refused by name when they are damaged."""

import errno
import io
import json
import os
import resource
import time
import tracemalloc
import zipfile

import numpy as np
import pytest

import rpukit as rk
from rpukit._files import archive, writing
from rpukit.errors import FormatError, NonFiniteError, SaveError
from rpukit.testing import assert_same_bits
from tools import file_damage
from tools.fuzz_files import data, plain, trainer

W = np.linspace(-0.5, 0.5, 12, dtype=np.float32).reshape(3, 4)


def tile(scale=1.0):
    return rk.AnalogTile((3, 4), rk.SoftBounds(), seed=2).set_weights(scale * W)


def members(path):
    """Header and contents of the members of a file."""
    found = file_damage.members_of(path.read_bytes())
    return json.loads(np.load(io.BytesIO(found[file_damage.HEADER])).tobytes()), found


def rewrite(path, change, *, checksum="remove"):
    """Change the header of a file."""
    header, found = members(path)
    change(header)
    if checksum == "remove":
        header.pop("checksum", None)
    path.write_bytes(file_damage.with_text(found, json.dumps(header).encode()))


@pytest.fixture
def path(tmp_path):
    rk.save(tmp_path / "tile.npz", tile())
    return tmp_path / "tile.npz"


# ---- reading -----------------------------------------------------------------------------------


def test_only_the_checksum_tells_that_a_number_changed(path):
    found = file_damage.members_of(path.read_bytes())
    for name, content in found.items():
        changed = bytearray(content)
        changed[-2] ^= 1
        if name == file_damage.HEADER:
            changed = content.replace(b'"update": 0', b'"update": 1')
        path.write_bytes(file_damage.packed([(k, bytes(changed) if k == name else v)
                                             for k, v in found.items()]))  # fmt: skip
        with pytest.raises(FormatError, match=r"tile\.npz: .*checksum"):
            rk.load(path)


def test_equal_states_make_equal_files(path, tmp_path):
    time.sleep(0.01)
    rk.save(tmp_path / "again.npz", rk.load(path))
    assert (tmp_path / "again.npz").read_bytes() == path.read_bytes()


def test_large_arrays_of_floats_are_stored_as_they_are(path, tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "_STORED", 40)
    rk.save(tmp_path / "large.npz", tile())
    with zipfile.ZipFile(tmp_path / "large.npz") as zipped:
        packed = {i.filename: i.compress_type == zipfile.ZIP_DEFLATED for i in zipped.infolist()}
    assert not packed["weight.npy"] and packed["header.json.npy"]
    assert_same_bits(np.asarray(rk.load(tmp_path / "large.npz")), np.asarray(tile()))
    assert members(path)[0]["checksum"] == members(tmp_path / "large.npz")[0]["checksum"]


def test_a_file_without_a_checksum_loads(path):
    rewrite(path, lambda header: None)
    assert_same_bits(np.asarray(rk.load(path)), np.asarray(tile()))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda h: h.update(shape=[1 << 20, 1 << 20]), r"header\.shape"),
        (lambda h: h.update(shape=[3, 4.0]), r"header\.shape\[1\]"),
        (lambda h: h["clocks"].update(update=-1), r"clocks\.update.*-1"),
        (lambda h: h["clocks"].update(update=float("nan")), r"clocks\.update.*nan"),
        (lambda h: h["clocks"].update(update=1 << 60), r"clocks\.update"),
        (lambda h: h["clocks"].update(forward=2.5), r"clocks\.forward"),
        (lambda h: h["clocks"].update(reset=True), r"clocks\.reset"),
        (lambda h: h.update(stream=[1]), r"header\.stream"),
        (lambda h: h.update(more=1), "more"),
        (lambda h: h.pop("dtype"), "without dtype"),
        (lambda h: h.update(dtype="float16"), r"header\.dtype"),
        (lambda h: h.update(version=True), "version True"),
        (lambda h: h.update(format=["rpukit.AnalogTile"]), "names none of"),
        (lambda h: h["cell"].update(dw_min=float("nan")), "dw_min"),
        (lambda h: h["cell"].update({"class": "Vector", "devices": [h["cell"].copy()] * 99}), ""),
    ],
)
def test_headers_are_checked_before_memory_is_taken(path, change, words):
    rewrite(path, change)
    tracemalloc.start()
    with pytest.raises(FormatError, match=rf"tile\.npz: .*{words}"):
        rk.load(path)
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("n", [1 << 32, 1 << 44])
def test_sizes_are_compared_with_the_bytes(path, n):
    found = file_damage.members_of(path.read_bytes())
    found["weight.npy"] = file_damage.npy_head("<f4", (n,))
    path.write_bytes(file_damage.packed(list(found.items())))
    with pytest.raises(FormatError, match=r"weight.*need \d+ for float32"):
        rk.load(path)


@pytest.mark.parametrize(("name", "n"), [("forward.average", 1 << 24), ("more", 1 << 26)])
def test_a_bomb_is_not_unpacked(path, name, n):
    header, found = members(path)
    del header["checksum"]
    found[f"{name}.npy"] = file_damage.npy_head("<f4", (n,)) + bytes(4 * n)
    path.write_bytes(file_damage.with_text(found, json.dumps(header).encode()))
    tracemalloc.start()
    with pytest.raises(FormatError, match=f"array {name}: got shape"):
        rk.load(path)
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda h: h["nodes"][0].update(n_node=1 << 39), "memory|need|bytes"),
        (lambda h: h["nodes"][0].update(var=1 << 40), "var|columns"),
        (lambda h: h["nodes"][-1].update(children=[10**6]), "children"),
        (lambda h: h.update(roots=[-1]), "roots"),
        (lambda h: h.update(n_sample=-1), "n_sample"),
        (lambda h: [n.update(leaf="walk") for n in h["nodes"] if "leaf" in n], "walk"),
        (
            lambda h: [
                n["leaf_parameters"].update(n_values=1 << 19) for n in h["nodes"] if "leaf" in n
            ],
            "leaf",
        ),
        (lambda h: h.update(nodes=3), "nodes"),
    ],
)
def test_circuits_are_checked_before_memory_is_taken(tmp_path, change, words):
    path = tmp_path / "hmm.npz"
    rk.save(path, rk.Circuit(rk.circuits.hmm(3, 2, 4)))
    rewrite(path, change)
    with pytest.raises(FormatError, match=rf"hmm\.npz: .*({words})"):
        rk.load(path)


def test_parameters_of_nodes_outside_the_circuit_are_kept(tmp_path):
    outside = rk.circuits.inputs(0, rk.circuits.Bernoulli(), 2, parameters=[0.2, 0.9])
    copies = [outside.duplicate(v) for v in range(2)]
    pc = rk.Circuit(rk.circuits.sum(rk.circuits.product(*copies), n_nodes=1), seed=1)
    rk.save(tmp_path / "tied.npz", pc)
    again = rk.load(tmp_path / "tied.npz")
    x = np.array([[0, 0], [0, 1], [1, 1]])
    for one in (pc, again):
        one.em_step(x)
    assert_same_bits(again.log_likelihood(x), pc.log_likelihood(x))
    assert plain(again.state()) == plain(pc.state())


def test_grids_are_checked_before_memory_is_taken(tmp_path):
    path = tmp_path / "grid.npz"
    rk.save(path, rk.inference.map_matrix((3, 4), max_tile=(2, 2)))
    for grid in ([1 << 30, 1 << 30], [4, 1], [2], [0, 0]):
        rewrite(path, lambda h, grid=grid: h.update(grid=grid))
        with pytest.raises(FormatError, match=r"grid\.npz: .*header"):
            rk.load(path)


def test_nan_is_neither_loaded_nor_saved(path, tmp_path):
    header, found = members(path)
    weight = np.load(io.BytesIO(found["weight.npy"]))
    weight[1, 1] = np.nan
    buffer = io.BytesIO()
    np.save(buffer, weight)
    found["weight.npy"] = buffer.getvalue()
    del header["checksum"]
    path.write_bytes(file_damage.with_text(found, json.dumps(header).encode()))
    with pytest.raises(FormatError, match=r"array weight: got NaN"):
        rk.load(path)
    with pytest.raises(NonFiniteError, match="array a holds NaN"):
        archive.write(tmp_path / "other.npz", {}, {"a": np.array([1, np.nan])})
    assert not (tmp_path / "other.npz").exists()


@pytest.mark.parametrize(
    ("cell", "options", "name", "slot", "value"),
    [
        (rk.PiecewiseStep(piecewise_up=(1.5, 1)), {}, "globals", 1, 1e6),
        (rk.SoftBounds(), {"storage": "procedural"}, "recipe", 37, 3.0),
        (rk.SoftBounds(), {"storage": "procedural"}, "recipe", 15, 0.5),
        (rk.ChoppedTransfer(), {}, "chopper_out", 0, -7),
        (rk.SoftBounds(), {"count_pulses": True}, "pulse_counts", 0, -1),
        (rk.SoftBounds(), {}, "n_pulses", 0, -1),
    ],
)
def test_numbers_by_which_kernels_find_their_data(cell, options, name, slot, value):
    state = rk.AnalogTile((3, 4), cell, **options).state()
    state["arrays"][name].reshape(-1)[slot] = value
    with pytest.raises(FormatError, match=f"array {name}: got"):
        rk.AnalogTile.from_state(state)


def test_what_is_no_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(FormatError, match="regular"):
        rk.load(tmp_path / "pipe.npz")
    with pytest.raises(IsADirectoryError):
        rk.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        rk.load(tmp_path / "none.npz")


@pytest.mark.parametrize("n_step", [float("nan"), float("inf"), -1, 1.5, "1", None, 1 << 64])
def test_trainers_stay_as_they_are(tmp_path, n_step):
    path, own = tmp_path / "state.npz", trainer(1)
    trainer(3).save(path)
    before = plain(own.parameters(everything=True))
    rewrite(path, lambda header: header.update(n_step=n_step))
    with pytest.raises(FormatError, match=r"state\.npz: header\.n_step"):
        own.load(path)
    rewrite(path, lambda header: header.pop("n_step"))
    with pytest.raises(FormatError, match="without n_step"):
        own.load(path)
    assert (plain(own.parameters(everything=True)), own.n_step) == (before, 1)


def test_steps_beyond_32_bits(tmp_path):
    path, start = tmp_path / "state.npz", (1 << 32) - 2
    trainer(2).save(path)
    rewrite(path, lambda header: header.update(n_step=start))
    one, other = trainer(1), trainer(2)
    one.load(path)
    pair = (data(4, 3), data(4, 1))
    assert one.fit([pair] * 4).tobytes() == other.fit([pair] * 4).tobytes()
    one.save(path)
    other.load(path)
    assert one.n_step == other.n_step == start + 4
    assert plain(one.parameters(everything=True)) == plain(other.parameters(everything=True))


def test_a_training_that_diverged_is_kept(tmp_path):
    one, other = trainer(1), trainer(1)
    one.step((data(4, 3) * np.float32(np.inf), data(4, 1)))
    assert np.isnan(one.parameters()["w"]).any()
    one.save(tmp_path / "state.npz")
    other.load(tmp_path / "state.npz")
    assert plain(other.parameters(everything=True)) == plain(one.parameters(everything=True))


# ---- writing -----------------------------------------------------------------------------------


def test_a_full_disk_leaves_the_old_file(path, monkeypatch):
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        with pytest.raises(SaveError, match=r"tile\.npz: not written") as told:
            rk.save(path, tile(0.5))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert told.value.errno == errno.EFBIG

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(writing.os, "fsync", full)
    with pytest.raises(SaveError, match="No space left") as told:
        rk.save(path, tile(0.5))
    assert told.value.errno == errno.ENOSPC
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_a_folder_that_is_missing(tmp_path):
    with pytest.raises(SaveError, match="No such file"):
        rk.save(tmp_path / "none" / "tile.npz", tile())


def test_what_killed_processes_left_is_removed(path):
    names = [f".{path.name}.{digits}.part" for digits in ("00112233", "44556677", "8899aabb")]
    for name in names:
        (path.parent / name).write_bytes(b"part of a file")
    other = path.parent / ".tile_of_others.npz.00112233.part"
    other.write_bytes(b"")
    for file in (*(path.parent / name for name in names[1:]), other):
        os.utime(file, (1, 1))
    with open(path.parent / names[1], "rb") as file:  # somebody writes it
        assert writing._lock(file)
        rk.save(path, tile())
    assert sorted(os.listdir(path.parent)) == sorted([path.name, *names[:2], other.name])


def test_an_interrupted_save_leaves_the_old_file(path, monkeypatch):
    before = path.read_bytes()

    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(zipfile.ZipFile, "open", interrupt)
    with pytest.raises(KeyboardInterrupt):
        rk.save(path, tile(0.5))
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_a_killed_process_leaves_a_whole_file(tmp_path):
    """tools/fuzz_resume.py does it as often as one likes."""
    from tools.fuzz_resume import killed_saves

    both = [tile(), tile(0.5)]
    states = [plain(one.state()) for one in both]
    rk.save(tmp_path / "tile.npz", both[0])
    for found in killed_saves(tmp_path / "tile.npz", both, 5, np.random.default_rng(3)):
        assert plain(found.state()) in states
