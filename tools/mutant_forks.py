"""Run a function in a fork of this process, for a limited time, and take its result."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable
from typing import Any


def forked(work: Callable[[], Any], limit: float) -> tuple[Any, str]:
    """Run a function in a fork: its result, or None and how the fork ended."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        _in_child(work, limit, write)
    os.close(write)
    parts, end = [], time.monotonic() + limit
    while True:
        ready, _, _ = select.select([read], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(read)
            return None, "takes too long"
        part = os.read(read, 1 << 16)
        if not part:
            break
        parts.append(part)
    os.close(read)
    _, status = os.waitpid(child, 0)
    text = b"".join(parts).decode()
    if not text:
        return None, f"ends with {os.waitstatus_to_exitcode(status)}"
    return json.loads(text), ""


def _in_child(work: Callable[[], Any], limit: float, write: int) -> None:
    code = 1
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 5, int(limit) + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        text = json.dumps(work()).encode()
        while text:
            text = text[os.write(write, text) :]
        code = 0
    finally:
        os._exit(code)
