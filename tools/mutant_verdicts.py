"""What became of each mutant, kept in ``tools/mutant_verdicts.txt``: a sweep tries what is new.

The file names each source with a hash of its text, and under it what noticed which mutants: the
name of a golden case, of a test, or how the run ended. A mutant is named by its line and columns.
Verdicts of a source whose hash is another one count no longer.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

from mutants import Mutant

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "tools" / "mutant_verdicts.txt"
SURVIVED, BROKEN = "survived", "broken"
SAME = "survived unseen"  # no case came to where the edit makes a difference
HEAD = """\
# Verdicts on mutants, written by tools/mutate.py: a source and its hash, then what noticed which
# mutants (line:first column-last column). "survived" needs an entry in mutants.toml, and so does
# "survived unseen", where no case came to a difference; "broken" does not compile.
"""


@cache
def includes(path: Path) -> frozenset[str]:
    """Names of the headers that a source includes, at any depth."""
    found = set(re.findall(r'#include "([^"]+)"', path.read_text(encoding="utf-8")))
    return frozenset(found.union(*(includes(ROOT / "kernels_cu/include" / n) for n in found)))


@cache
def hash_of(file: str) -> str:
    """Short hash of a source. Its headers do not count: few verdicts change with them."""
    return hashlib.sha256((ROOT / file).read_bytes()).hexdigest()[:12]


def short(mutant: Mutant) -> str:
    """Name of a mutant within its file."""
    return f"{mutant.line}:{mutant.begin}-{mutant.end}"


class Verdicts:
    """Verdicts by file: a hash, and by mutant what noticed it, or how it ended."""

    def __init__(self, path: Path = FILE) -> None:
        self.path = path
        self.files: dict[str, tuple[str, dict[str, str]]] = {}
        if path.exists():
            self._read(path.read_text(encoding="utf-8"))

    def _read(self, text: str) -> None:
        for line in text.splitlines():
            if line.startswith("#") or not line.strip():
                continue
            if not line.startswith(" "):
                file, source = line.split()
                own: dict[str, str] = {}
                self.files[file] = (source, own)
            else:
                by, _, names = line.strip().rpartition(" | ")
                own |= dict.fromkeys(names.split(), by)

    def get(self, mutant: Mutant) -> str | None:
        """What is known of a mutant of the source as it is now."""
        source, own = self.files.get(mutant.file, ("", {}))
        return own.get(short(mutant)) if source == hash_of(mutant.file) else None

    def set(self, mutant: Mutant, by: str) -> None:
        """Keep a verdict; older ones of another text of that source are dropped."""
        now = hash_of(mutant.file)
        if self.files.get(mutant.file, ("",))[0] != now:
            self.files[mutant.file] = (now, {})
        what = " ".join(by.partition("[")[0].split())[:90]  # without the parameters of a test
        self.files[mutant.file][1][short(mutant)] = what or SURVIVED

    def write(self) -> None:
        """Write the file anew, files and verdicts in order."""
        parts = [HEAD]
        for file, (source, own) in sorted(self.files.items()):
            parts.append(f"{file} {source}\n")
            groups: dict[str, list[str]] = {}
            for name, by in own.items():
                groups.setdefault(by, []).append(name)
            for by, names in sorted(groups.items()):
                names.sort(key=lambda n: [int(v) for v in re.split("[:-]", n)])
                parts.append(f"  {by} | {' '.join(names)}\n")
        scratch = self.path.with_suffix(".new")
        scratch.write_text("".join(parts), encoding="utf-8")
        scratch.replace(self.path)
