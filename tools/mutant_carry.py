"""Carry verdicts over a change of their source: ``python tools/mutant_carry.py [FILE]``.

`mutate.py` drops the verdicts of a source whose text is another one. This finds the text that they
were made with in the history of git, and keeps those of functions that are the same in both.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from mutant_users import regions
from mutant_verdicts import ROOT, Verdicts, hash_of


def text_of(file: str, short_hash: str) -> str | None:
    """The text of a source whose hash is known, from the history of git."""

    def git(*words: str) -> bytes:
        return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, check=False).stdout

    for commit in git("log", "-40", "--format=%H", "--", file).decode().split():
        content = git("show", f"{commit}:{file}")
        if hashlib.sha256(content).hexdigest()[:12] == short_hash:
            return content.decode()
    return None


def places(path: Path) -> dict[str, int]:
    """First line of each function, structure and macro of a source, by its text."""
    lines = path.read_text(encoding="utf-8").split("\n")
    found: dict[str, int] = {}
    for first, last, _, _ in regions(path):
        text = "\n".join(lines[first - 1 : last])
        found[text] = 0 if text in found else first
    return found


def carried(old: Path, new: Path, own: dict[str, str]) -> dict[str, str]:
    """Verdicts at the lines that they have in another version of the source."""
    before, after = places(old), places(new)
    moved: dict[int, int] = {}  # lines
    for text, first in before.items():
        to = after.get(text, 0)
        if first and to:
            moved |= {first + k: to + k for k in range(text.count("\n") + 1)}
    kept = {}
    for name, by in own.items():
        line, _, columns = name.partition(":")
        if int(line) in moved:
            kept[f"{moved[int(line)]}:{columns}"] = by
    return kept


def main() -> int:
    verdicts = Verdicts(Path(sys.argv[1])) if len(sys.argv) > 1 else Verdicts()
    for file, (old_hash, own) in list(verdicts.files.items()):
        path = ROOT / file
        if not path.is_file():
            del verdicts.files[file]
            continue
        if hash_of(file) == old_hash or not re.search(r"\.cuh?$", file):
            continue
        text = text_of(file, old_hash)
        kept: dict[str, str] = {}
        if text is not None:
            with tempfile.NamedTemporaryFile("w", suffix=path.suffix, encoding="utf-8") as held:
                held.write(text)
                held.flush()
                kept = carried(Path(held.name), path, own)
        print(f"{file}: {len(kept)} of {len(own)} verdicts are kept")
        verdicts.files[file] = (hash_of(file), kept)
    verdicts.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
