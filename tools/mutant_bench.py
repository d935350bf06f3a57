"""What trials of mutants share: kernels with switches in the CPU runner, and what runs see.

A `Bench` puts itself in place of functions of the runner. `record` runs some work against the
source without edits, in a fork, and tells which mutants would have made a difference: all others
need no trial with that work. What is recorded is kept beside what was compiled, so that processes
of one kernel share it.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mutant_forks import forked
from mutant_memory import guard
from mutant_sources import Switched
from mutant_switches import MOST_MUTANTS, PRELUDE

from rpukit import testing
from rpukit._kernels import source
from rpukit.circuits.compiled import arena
from rpukit.errors import KernelCompileError
from tests.on_cpu import runner, store

# An index beyond an array whose length the compiler knows ends the process.
BOUNDS = (
    "-fsanitize=bounds-strict",
    "-fsanitize-undefined-trap-on-error",
    "-fno-aggressive-loop-optimizations",  # else loops end where arrays do
)
SANITIZED = os.environ.get("RPUKIT_ON_CPU_SANITIZE") == "1"


class NotCompiled(Exception):
    """A source that the compiler refused; its name, and its lines with errors."""

    def __init__(self, kernel: str, log: str) -> None:
        super().__init__(log)
        self.kernel, self.log = kernel, log


class Bench:
    """Kernels with switches, and the libraries that a run has used."""

    def __init__(self, kernels: dict[str, Switched], folder: Path) -> None:
        self.kernels = kernels
        self.recording, self.at_work = False, ""
        self.used: dict[str, tuple[str, Any]] = {}  # by name: kernel, library
        for kernel in kernels.values():
            kernel.write()
        self._load, self._library = source.load, runner.library
        self._text_of, self._flags = runner.text_of, runner.flags
        source.load = self.load  # type: ignore[assignment]
        runner.library, runner.text_of, runner.flags = self.library, self.text_of, self.flags
        finds_races = runner.finds_races
        runner.finds_races = lambda v: bool(self.at_work) and finds_races(v)
        testing.set_runner(runner.run)
        self.memory = None if SANITIZED else guard(folder)
        arena.Arena.take = lambda *_: None  # type: ignore[method-assign]  # arrays end at a guard page

    # ---- in place of the runner's functions

    def load(self, name: str) -> Any:
        return self.kernels[name].own if name in self.kernels else self._load(name)

    def flags(self, races: bool = False) -> tuple[str, ...]:
        usual = self._flags(races)
        if not self.at_work:
            return usual
        return (*usual, "-Werror=vla", *(() if races or SANITIZED else BOUNDS))

    def text_of(self, variant: Any) -> str:
        text = self._text_of(variant)
        if not self.at_work:
            return text
        first, rest = text.split("\n", 1)
        return f"{first}\n{PRELUDE}{rest}"

    def library(self, variant: Any) -> Any:
        name = variant.source.name
        self.at_work = name if name in self.kernels else ""
        try:
            made = self._library(variant)
        except KernelCompileError as error:
            raise NotCompiled(name, error.log) from error
        if self.at_work:
            number = -1 if self.recording else self.kernels[name].number
            ctypes.c_int.in_dll(made, "rk_mutant").value = number
            self.used[made._name] = (name, made)
        return made

    def differed(self) -> bool:
        """Whether a mutant did anything else than the source, as far as one can know."""
        if any(k.number in k.alone for k in self.kernels.values()):
            return True
        return any(ctypes.c_int.in_dll(m, "rk_differed").value for _, m in self.used.values())

    # ---- what runs see

    def seen(self) -> list[str]:
        """Names of the mutants that would have made a difference; forgets them."""
        found: set[str] = set()
        for kernel, library in self.used.values():
            flags = (ctypes.c_ubyte * MOST_MUTANTS).in_dll(library, "rk_seen")
            mutants = self.kernels[kernel].mutants
            found.update(mutants[k].name for k, v in enumerate(bytes(flags)) if v)
            ctypes.memset(flags, 0, MOST_MUTANTS)
        return sorted(found)

    def _kept(self, name: str) -> tuple[Path, list[str]]:
        """Where the record of some work is kept, and the mutants that it has to cover."""
        kernels = self.kernels.values()
        covers = sorted(
            {m.name for s in kernels for k, m in s.mutants.items() if k not in s.alone}
        )
        texts = json.dumps([s.plain() for s in kernels], sort_keys=True)
        options = (*self._flags(), os.environ.get("RPUKIT_ON_CPU_RACES", ""))
        return store.folder() / f"seen-{store.key_of(texts, name, *options)}.json", covers

    def known(self, name: str) -> dict[str, Any] | None:
        """What was recorded of some work, for these mutants or for more."""
        kept, covers = self._kept(name)
        if not kept.exists():
            return None
        found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        return found if set(covers) <= set(found["covers"]) else None

    def record(
        self, name: str, work: Callable[[], dict[str, Any]], limit: float
    ) -> tuple[dict[str, Any], str]:
        """What work gives, with what it has seen, the time it took and what it has compiled.

        Gives {} and the reason if it does not end. A kernel that does not compile gives "log".
        """
        found = self.known(name)
        if found and all(Path(path).exists() for path in found["libraries"].values()):
            return found, ""
        kept, covers = self._kept(name)
        found, why = forked(lambda: self._recorded(work), limit)
        if found is None:
            return {}, why
        if "log" not in found:
            scratch = kept.with_name(f"{kept.name}.{os.getpid()}")
            scratch.write_text(json.dumps({"covers": covers, **found}), encoding="utf-8")
            scratch.replace(kept)
        return found, ""

    def _recorded(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        libraries, compiling = {}, [0.0]
        old = runner.store.kept

        def kept(name: str, make: Any) -> Path:
            begin = time.perf_counter()
            path = old(name, make)
            compiling[0] += time.perf_counter() - begin  # or waiting for who compiles it
            if name.endswith(".so"):
                libraries[Path(name).stem.split("-")[-1]] = str(path)
            return path

        runner.store.kept, self.recording = kept, True
        begin = time.perf_counter()
        try:
            found = work()
        except NotCompiled as error:
            return {"log": error.log, "kernel": error.kernel}
        finally:
            runner.store.kept, self.recording = old, False
        found["time"] = time.perf_counter() - begin - compiling[0]
        return {"seen": self.seen(), "libraries": libraries, **found}

    def hold(self, libraries: dict[str, str]) -> None:
        """Load libraries that forks will use."""
        for key, path in libraries.items():
            if key not in runner._libraries and Path(path).exists():
                runner._libraries[key] = ctypes.CDLL(path)


def forget() -> None:
    """Drop the results that golden cases keep for one another."""
    for name, module in list(sys.modules.items()):
        if name.startswith("tests.golden"):
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
