"""Memory of NumPy's arrays with a guard page behind each, for trials of mutants.

A kernel that reads or writes beyond the end of an array ends the process. Up to 3 bytes between
the end and the guard page, and what lies before an array, are poisoned and checked; `align` gives
all arrays 16 bytes' alignment, so that it may be up to 15. New arrays begin as NaN, so that what a
kernel leaves out does not show the results of an earlier run.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

SOURCE = r"""
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
extern "C" int memory_alignment;
int memory_alignment = 4;  // of the ends of arrays, or 16
// A page of ours, whose end is poisoned; the array, as far back as it can be; a guard page.
namespace {
constexpr size_t PAGE = 4096, POISONED = 512;
constexpr int POISON = 0xff;
struct Block { size_t size, pages; char *data; Block *next, *before; };
Block *all = nullptr;

Block *block_of(void *data) {
    return reinterpret_cast<Block *>((reinterpret_cast<uintptr_t>(data) & ~(PAGE - 1)) - PAGE);
}
bool poisoned(const char *begin, const char *end) {
    for (; begin < end; ++begin)
        if (*begin != char(POISON)) return false;
    return true;
}
bool intact(const Block *b) {
    const char *page = reinterpret_cast<const char *>(b), *end = page + (1 + b->pages) * PAGE;
    return poisoned(page + PAGE - POISONED, b->data) && poisoned(b->data + b->size, end);
}
void *take(size_t size, int fill) {
    size_t align = memory_alignment, room = (size + align - 1) / align * align;
    size_t pages = (room + PAGE - 1) / PAGE;
    pages = pages ? pages : 1;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *at = mmap(nullptr, (pages + 2) * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (at == MAP_FAILED) return nullptr;
    char *page = static_cast<char *>(at), *end = page + (1 + pages) * PAGE;
    mprotect(end, PAGE, PROT_NONE);
    room = room ? room : 16;
    Block *b = reinterpret_cast<Block *>(page);
    *b = {size, pages, end - room, all, nullptr};
    if (all) all->before = b;
    all = b;
    memset(page + PAGE - POISONED, POISON, b->data - (page + PAGE - POISONED));
    if (fill) memset(b->data, fill, size);
    memset(b->data + size, POISON, room - size);
    return b->data;
}
void give(void *, void *data, size_t) {
    if (!data) return;
    Block *b = block_of(data);
    if (!intact(b)) abort();
    (b->before ? b->before->next : all) = b->next;
    if (b->next) b->next->before = b->before;
    munmap(b, (b->pages + 2) * PAGE);
}
void *get(void *, size_t size) { return take(size, POISON); }
void *get_zeros(void *, size_t n, size_t each) { return take(n * each, 0); }
void *get_again(void *context, void *data, size_t size) {
    void *made = take(size, POISON);
    if (made && data) {
        size_t old = block_of(data)->size;
        memcpy(made, data, old < size ? old : size);
        give(context, data, old);
    }
    return made;
}
struct {
    char name[127] = "guarded";
    uint8_t version = 1;
    void *context = nullptr;
    void *(*get)(void *, size_t) = ::get;
    void *(*get_zeros)(void *, size_t, size_t) = ::get_zeros;
    void *(*get_again)(void *, void *, size_t) = ::get_again;
    void (*give)(void *, void *, size_t) = ::give;
} handler;
}  // namespace
extern "C" void *memory_handler() { return &handler; }
// Arrays in use whose surroundings were written to.
extern "C" int memory_faults() {
    int found = 0;
    for (Block *b = all; b; b = b->next) found += !intact(b);
    return found;
}
"""
SET_HANDLER = 304  # place of PyDataMem_SetHandler in NumPy's table of functions
CAPSULE = b"mem_handler"


def guard(folder: Path) -> ctypes.CDLL:
    """Give every array that is made from now on, in this thread, memory with a guard page."""
    from numpy._core import _multiarray_umath

    path = folder / "memory.so"
    folder.mkdir(parents=True, exist_ok=True)
    compiler = shutil.which(os.environ.get("CXX", "g++")) or "g++"
    command = [compiler, "-x", "c++", "-", "-std=c++17", "-fPIC", "-shared", "-o", str(path)]
    subprocess.run(command, input=SOURCE, text=True, check=True)
    library = ctypes.CDLL(str(path))
    library.memory_handler.restype = ctypes.c_void_p
    python = ctypes.pythonapi
    python.PyCapsule_New.restype = ctypes.py_object
    python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    python.PyCapsule_GetPointer.restype = ctypes.c_void_p
    python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    table = python.PyCapsule_GetPointer(_multiarray_umath._ARRAY_API, None)
    address = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))[SET_HANDLER]
    put = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(address)
    put(python.PyCapsule_New(library.memory_handler(), CAPSULE, None))
    return library


def align(library: ctypes.CDLL) -> bool:
    """Let new arrays begin at multiples of 16 bytes; whether they did not before."""
    held = ctypes.c_int.in_dll(library, "memory_alignment")
    before, held.value = held.value, 16
    return before != 16
