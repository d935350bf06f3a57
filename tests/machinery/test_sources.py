"""Sources: found, expanded, parsed, hashed; compiled without a GPU; kept in the cache folder."""

import logging
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from rpukit import _cache as cache
from rpukit._kernels import Kernel, source
from rpukit._kernels import compile as compiler
from rpukit.errors import KernelCompileError
from rpukit.testing import on_cpu
from tools import check_kernels

PLANTED = Path(__file__).parents[1] / "on_cpu/planted"
PLAIN = source.read(PLANTED / "plain.cu")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RPUKIT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write(place, text, name="made.cu"):
    (place / name).write_text(text)
    return place / name


ENTRY = 'extern "C" __global__ void made(int n) {}\n'


def test_signature():
    parameters = PLAIN.entries["plain"]
    assert [(p.ctype, p.pointer, p.name) for p in parameters] == [
        ("int", False, "n"),
        ("u32", False, "first"),
        ("u64", False, "big"),
        ("long long", False, "wide"),
        ("REAL", False, "a"),
        ("REAL", True, "x"),
        ("REAL", True, "y"),
        ("int", True, "skip"),
        ("unsigned char", False, "small"),
    ]
    assert list(PLAIN.entries) == ["plain", "shared_size"]
    assert PLAIN.resolve("REAL", {}) == "float"
    assert PLAIN.resolve("REAL", {"REAL": "double"}) == "double"


@pytest.mark.parametrize(
    "text",
    [
        'extern "C" __global__ void made(int n)',
        'extern "C" __global__ void __launch_bounds__(256, 2) made(int n)',
        'extern "C" __global__ void __launch_bounds__((A / 2) * (B)) made ( int n )',
        'extern "C" __global__ __launch_bounds__(256) void\nmade(\n    int n  // how many\n)',
        '// extern "C" __global__ void old(int x)\nextern "C"\n__global__ void made(const int n)',
        '/* extern "C" __global__ void other(float x) */ extern "C" __global__ void made(int n)',
    ],
)
def test_ways_to_write_an_entry_point(tmp_path, text):
    read = source.read(write(tmp_path, text + " {}\n"))
    assert {name: [(p.ctype, p.name) for p in ps] for name, ps in read.entries.items()} == {
        "made": [("int", "n")]
    }


def test_header_lines_and_defaults():
    assert PLAIN.header["arch"] == ("sm_80 sm_120",)
    assert PLAIN.checks() == [{}, {"REAL": "double"}, {"REAL": "double", "OFFSET": "2"}]
    # TWICE has two defaults, so its value is always handed on.
    assert PLAIN.defaults == {"REAL": "float", "OFFSET": "0"}
    assert PLAIN.settings({"TWICE": 0, "REAL": "float", "OFFSET": 2}) == {
        "OFFSET": "2",
        "TWICE": "0",
    }


def test_includes_are_expanded_once_with_their_lines():
    assert PLAIN.text.count("typedef unsigned int u32;") == 1
    assert '#line 1 "plain.cuh"' in PLAIN.text
    assert "#include" not in PLAIN.text
    assert "#pragma once" not in PLAIN.text


def test_errors_point_at_the_file_that_was_written(tmp_path):
    write(tmp_path, "#pragma once\n\ninline int broken() { return missing_name; }\n", "inner.cuh")
    path = write(tmp_path, '#include "inner.cuh"\n\n' + ENTRY)
    with pytest.raises(KernelCompileError) as caught:
        compiler.build(source.read(path), "sm_80", {})
    assert "inner.cuh(3)" in caught.value.log
    path = write(tmp_path, '#include "inner.cuh"\n' + ENTRY.replace("{}", "{ also_missing(n); }"))
    write(tmp_path, "#pragma once\n\n", "inner.cuh")
    with pytest.raises(KernelCompileError) as caught:
        compiler.build(source.read(path), "sm_80", {})
    assert "made.cu(2)" in caught.value.log
    assert "also_missing" in str(caught.value)
    assert "void made" in caught.value.source


def test_includes_that_are_not_there(tmp_path):
    with pytest.raises(KernelCompileError, match=r"made.cu includes 'nowhere.cuh', which is not"):
        source.read(write(tmp_path, '#include "nowhere.cuh"\n' + ENTRY))


def test_no_entry_point(tmp_path):
    with pytest.raises(KernelCompileError, match="no entry point"):
        source.read(write(tmp_path, "__global__ void made(int n) {}\n"))


def test_names_of_kernels():
    assert "det_gemm" in source.names()
    assert source.load("det_gemm").name == "det_gemm"
    with pytest.raises(KernelCompileError, match="no kernel 'no_such': there are add_scaled, "):
        source.load("no_such")


def test_hash_follows_everything_that_decides_the_binary(tmp_path):
    write(tmp_path, "#define K 1\n", "inner.cuh")
    path = write(tmp_path, '#include "inner.cuh"\n' + ENTRY)
    first = source.read(path).digest("sm_80")
    assert first == source.read(path).digest("sm_80")
    assert first != source.read(path).digest("sm_90a")
    assert first != source.read(path).digest("sm_80", "-DK=2")
    write(tmp_path, "#define K 2\n", "inner.cuh")
    assert first != source.read(path).digest("sm_80")
    assert first != source.read(path, {"inner.cuh": "#define K 3\n"}).digest("sm_80")


def test_headers_given_as_text(tmp_path):
    """A device function that a user writes takes the place of a header."""
    import numpy as np

    path = write(
        tmp_path,
        '#include "step.cuh"\nextern "C" __global__ void made(float *y) { *y = step(*y); }\n',
    )
    with pytest.raises(KernelCompileError):
        Kernel("made", path=path).source()
    text = "__device__ float step(float w) { return w * 3.0f; }\n"
    y = np.full(1, 2, np.float32)
    with on_cpu():
        Kernel("made", path=path, headers={"step.cuh": text}).launch((1,), (1,), (y,))
    assert y[0] == 6


def test_all_kernels_are_found_beside_the_package():
    folder = source.folder()
    assert folder.name == "kernels_cu"
    assert {p.stem for p in folder.glob("*.cu")} == set(source.names())


# --- compiling ---------------------------------------------------------------------------------


def test_usage_is_read_from_the_report():
    text = source.load("tile_forward")
    usage = compiler.build(text, "sm_90a", {}).usage["tile_forward"]
    assert 16 < usage.registers <= 255
    assert usage.spill_bytes == 0
    assert 0 < usage.shared_bytes < 49152


def test_spills_are_seen(tmp_path):
    body = "float a[64]; for (int i = 0; i < 64; ++i) a[i] = x[i * n]; "
    body += (
        "for (int k = 0; k < n; ++k) for (int i = 0; i < 64; ++i) a[i] = a[i] * a[63 - i] + x[k]; "
    )
    body += "for (int i = 0; i < 64; ++i) x[i * n] = a[i];"
    bounds = "__launch_bounds__(1024, 2)"
    path = write(
        tmp_path, f'extern "C" __global__ void {bounds} made(int n, float *x) {{ {body} }}\n'
    )
    assert compiler.build(source.read(path), "sm_80", {}).usage["made"].spill_bytes > 0


def test_both_entry_points_are_reported_each_time():
    """NVRTC's own cache would give no report the second time."""
    first, second = (compiler.usage(PLAIN, "sm_120", {"REAL": "double"}) for _ in range(2))
    assert set(first) == {"plain", "shared_size"}
    assert first == second


def test_a_report_that_is_not_understood_is_an_error(monkeypatch):
    monkeypatch.setattr(compiler, "_usage", lambda log: {})
    assert compiler.build(PLAIN, "sm_80", {}).cubin  # a launch needs no report
    with pytest.raises(KernelCompileError, match="does not name each of plain, shared_size"):
        compiler.usage(PLAIN, "sm_80", {})


def test_options_are_exactly_ours(tmp_path):
    """a * b + c is not contracted, and denormals are kept."""
    assert set(compiler.OPTIONS) >= {
        "-fmad=false", "-ftz=false", "-prec-div=true", "-prec-sqrt=true",
    }  # fmt: skip
    from rpukit import _device

    nvrtc = _device.nvrtc()
    text = 'extern "C" __global__ void made(float a, float b, float *c) { *c = a * b + *c / b; }'
    program = nvrtc.createProgram(text, "made.cu", (), ())
    nvrtc.compileProgram(program, (*compiler.OPTIONS[:-1], "-arch=compute_80"))
    ptx = nvrtc.getPTX(program)
    ptx = ptx.decode() if isinstance(ptx, bytes) else ptx
    nvrtc.destroyProgram(program)
    assert "fma.rn" not in ptx
    assert "mul.f32" in ptx or "mul.rn.f32" in ptx
    assert "div.rn.f32" in ptx
    assert ".ftz" not in ptx


def test_architectures():
    names = [compiler.architecture(c) for c in ("80", "86", "90", "100", "120")]
    assert names == ["sm_80", "sm_86", "sm_90a", "sm_100a", "sm_120"]


def test_unknown_architecture_is_an_error_with_a_log():
    with pytest.raises(KernelCompileError, match="plain.cu does not compile for sm_1"):
        compiler.build(PLAIN, "sm_1", {})


# --- the cache folder --------------------------------------------------------------------------


def test_binaries_are_kept(folder, monkeypatch):
    first = compiler.cubin(PLAIN, "sm_80", {})
    (file,) = folder.iterdir()
    assert file.suffix == ".cubin"
    assert len(file.stem) == 64
    monkeypatch.setattr(compiler, "build", None)  # nothing is compiled any more
    assert compiler.cubin(PLAIN, "sm_80", {}) == first == file.read_bytes()
    with pytest.raises(TypeError):
        compiler.cubin(PLAIN, "sm_80", {"OFFSET": "2"})


def test_empty_variable_turns_the_cache_off(monkeypatch, tmp_path):
    monkeypatch.setenv("RPUKIT_CACHE_DIR", "")
    monkeypatch.chdir(tmp_path)
    assert cache.folder() is None
    assert cache.write("x", b"1") is None
    assert cache.read("x") is None
    assert compiler.cubin(PLAIN, "sm_80", {})
    assert not list(tmp_path.iterdir())


def test_default_folders(monkeypatch):
    monkeypatch.delenv("RPUKIT_CACHE_DIR", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", os.sep + "somewhere")
    assert cache.folder() == Path(os.sep, "somewhere", "rpukit")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.folder() == Path.home() / ".cache" / "rpukit"
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache.folder() == Path.home() / "Library" / "Caches" / "rpukit"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", os.sep + "local")
    assert cache.folder() == Path(os.sep, "local", "rpukit")


def test_folder_that_cannot_be_written_is_told_once(tmp_path, monkeypatch, caplog):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a folder")
    monkeypatch.setenv("RPUKIT_CACHE_DIR", str(in_the_way / "cache"))
    with caplog.at_level(logging.WARNING, "rpukit"):
        assert compiler.cubin(PLAIN, "sm_80", {})
        assert compiler.cubin(PLAIN, "sm_80", {"OFFSET": "2"})
    assert caplog.text.count("cannot be written") == 1


def test_a_failed_write_leaves_nothing(folder, monkeypatch, caplog):
    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with caplog.at_level(logging.WARNING, "rpukit"):
        assert cache.write("x", b"1") is None
    assert not list(folder.iterdir())
    assert "disk full" in caplog.text


def test_files_are_private_until_whole(folder):
    cache.write("x", b"12345")
    assert cache.read("x") == b"12345"
    assert stat.S_ISREG((folder / "x").stat().st_mode)
    assert [p.name for p in folder.iterdir()] == ["x"]


def test_compiling_is_logged(folder, caplog):
    with caplog.at_level(logging.INFO, "rpukit"):
        compiler.cubin(PLAIN, "sm_80", {})
        compiler.cubin(PLAIN, "sm_80", {})
    assert caplog.text.count("compiled plain for sm_80") == 1


def test_two_days_compile_every_binary():
    """And each day every set of macros of every kernel."""
    every, *days = (
        {(name, tuple(macros.items()), arch) for name, macros, arch in check_kernels.chosen(day)}
        for day in (None, 7, 8)
    )
    assert every == days[0] | days[1]
    for day in days:
        assert {one[:2] for one in day} == {one[:2] for one in every}
        assert len(day) < 0.7 * len(every)


def test_slow_binaries_are_faults(monkeypatch):
    """Spilled registers, and wgmma that the assembler makes wait for each other."""
    name = "det_gemm_tensor"
    serial = "(C7515) wgmma.mma_async instructions are serialized due to"
    for spilled, log, wanted in (
        (0, "", ""),
        (8, "", "spills 8 bytes"),
        (0, serial, "serialised"),
    ):
        built = SimpleNamespace(usage={name: SimpleNamespace(spill_bytes=spilled)}, log=log)
        monkeypatch.setattr(check_kernels.nvrtc, "build", lambda *_, built=built: built)
        found = check_kernels.fault((name, {"BN": 128}, "sm_90a"))
        assert wanted in found
        assert bool(found) is bool(wanted)
