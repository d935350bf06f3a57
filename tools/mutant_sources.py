"""The source of a kernel with all its mutants behind a number, and the few that stand alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mutant_switches import switched
from mutant_verdicts import ROOT, includes
from mutants import Mutant

from rpukit._kernels import source


class Switched:
    """A kernel whose mutants have numbers from 1; number 0 is the source without an edit."""

    def __init__(self, kernel: str, mutants: list[Mutant], folder: Path) -> None:
        self.kernel, self.folder = kernel, folder
        self.mutants = dict(enumerate(mutants, 1))
        self.alone = set[int]()  # numbers that are compiled alone
        self.number = 0
        self.own: Any = None
        self.texts: dict[str, str] = {}

    def plain(self) -> dict[str, str]:
        """The texts without edits, by name of the file."""
        own = ROOT / "kernels_cu" / f"{self.kernel}.cu"
        paths = (own, *(ROOT / "kernels_cu/include" / name for name in includes(own)))
        return {path.name: path.read_text(encoding="utf-8") for path in paths}

    def write(self) -> None:
        """Write the source with all mutants that have a switch."""
        self.texts = {}
        for file in {m.file for m in self.mutants.values()}:
            plain = (ROOT / file).read_text(encoding="utf-8")
            edits = [
                (k, m) for k, m in self.mutants.items() if m.file == file and k not in self.alone
            ]
            self.texts[file], held = switched(plain, edits)
            self.alone |= {k for k, _ in edits} - held
        self.own = self._written(self.folder / self.kernel, self.texts)

    def _written(self, place: Path, texts: dict[str, str]) -> Any:
        (place / "include").mkdir(parents=True, exist_ok=True)
        own = f"kernels_cu/{self.kernel}.cu"
        headers = (f"kernels_cu/include/{n}" for n in includes(ROOT / own))
        for file in {own, *headers, *texts}:  # a header finds those that it includes beside itself
            text = texts.get(file) or (ROOT / file).read_text(encoding="utf-8")
            (place / Path(file).relative_to("kernels_cu")).write_text(text, encoding="utf-8")
        return source.read(place / f"{self.kernel}.cu")

    def leave_out(self, log: str) -> None:
        """Compile alone what is in the lines of a compiler's errors; all if it is not known."""
        lines = {
            (name, int(line))
            for name, line in re.findall(r"^(\w+\.cuh?):(\d+):\d+:\s+\w*\s*error", log, re.M)
        } | {(name, int(line)) for name, line in re.findall(r"(\w+\.cuh?):(\d+):\d+:   req", log)}
        bad = {
            k
            for k, m in self.mutants.items()
            if k not in self.alone and (Path(m.file).name, m.line) in lines
        }
        self.alone |= bad or set(self.mutants)
        self.write()

    def take(self, number: int) -> None:
        """Make this process that of a mutant."""
        self.number = number
        if number in self.alone:
            mutant = self.mutants[number]
            plain = (ROOT / mutant.file).read_text(encoding="utf-8").split("\n")
            old = plain[mutant.line - 1]
            plain[mutant.line - 1] = " " * (len(old) - len(old.lstrip())) + mutant.after
            place = self.folder / f"{self.kernel}-{number}"
            self.own = self._written(place, {mutant.file: "\n".join(plain)})
