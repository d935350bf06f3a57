"""Processes for tests of what one keeps for the next, which begin at once.

They are forks of a server that has imported Numba and compiled a function of its own, since the
first one takes longest. It imports nothing of rpukit: they know as little of it as a new
interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

# A line of its input starts a script or, if it is a number, waits for the process of that number.
SERVER = """
import json, os, sys, traceback
import numba, numpy
numba.njit("float32(float32, float32[:])")(lambda x, many: x + many[0])
for line in sys.stdin:
    job = json.loads(line)
    if isinstance(job, int):
        print(os.waitstatus_to_exitcode(os.waitpid(job, 0)[1]), flush=True)
        continue
    process = os.fork()
    if process:
        print(process, flush=True)
        continue
    for number, path in enumerate(job["outputs"], 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(job["environment"])
    os.chdir(job["folder"])
    sys.path.insert(0, job["folder"])
    try:
        exec(job["script"], {"__name__": "__main__"})
    except Exception:
        traceback.print_exc()
        sys.exit(1)
    sys.exit()
"""


class FreshProcesses:
    """A server of processes; a context manager.

    Parameters
    ----------
    scratch : Path
        A folder for what the processes say.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch, self._count = scratch, 0

    def __enter__(self) -> FreshProcesses:
        self._server = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate(timeout=60)

    def _ask(self, job: object) -> int:
        self._server.stdin.write(json.dumps(job) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())

    def start(self, script: str, folder: Path, **variables: str) -> tuple[int, list[str]]:
        """Start a script where ``folder`` is the first place of imports."""
        outputs = [str(self._scratch / f"{name}{self._count}") for name in ("out", "err")]
        self._count += 1
        job = {"environment": os.environ | variables, "folder": str(folder)}
        return self._ask(job | {"script": script, "outputs": outputs}), outputs

    def finish(self, started: tuple[int, list[str]]) -> tuple[int, str, str]:
        """Wait for a script; its exit status, its output and its errors."""
        process, outputs = started
        status = self._ask(process)
        out, said = (Path(path).read_text() for path in outputs)
        return status, out, said
