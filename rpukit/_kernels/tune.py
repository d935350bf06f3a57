"""Pick the fastest of a kernel's variants, without ever changing a result.

All variants of a kernel give the same bits for every call they are valid for, so a choice affects
time only. Every call checks the validity of each candidate for its exact batch; times are stored
by the batch rounded up to a power of two, or to one of a few steps between two. A variant that
takes one sample only is therefore no candidate for more, whatever was fastest for one sample.

Times live in memory and in the cache folder, by device. Nothing is timed on the CPU (unless a test
injects a clock), during the capture of a graph, or when tuning is off: then a stored choice or the
first valid candidate is taken.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from rpukit import _device
from rpukit._device import CPU, Device
from rpukit._kernels import clock, launch, source
from rpukit._kernels.launch import Kernel
from rpukit._kernels.times import Record, Store
from rpukit.errors import DeviceError, ParameterError

_log = logging.getLogger("rpukit")
_lock = threading.RLock()

SCRATCH_LIMIT = 64 << 20  # bytes that a trial may allocate
_MEMO_LIMIT = 1 << 16
STAYS = 1 << 25  # bytes of a call's arrays that a later one may find in L2
_MARGIN = 0.99  # a later candidate has to be 1% faster: noise should not decide


class Candidate(Protocol):
    """Interface of a variant of a kernel to the tuner; the plain variant comes first."""

    @property
    def name(self) -> str:
        """Name, unique among the candidates."""

    def valid(self, n_batch: int) -> bool:
        """Whether the variant is valid for this batch."""


Trial = Callable[[Any], Sequence[Any] | None]
Clock = Callable[[Any, Callable[[], Any]], float]
Measure = Callable[[Sequence[Any], Trial], Sequence[float]]  # seconds of each candidate


@dataclass
class _Settings:
    """Settings of tests and users; the environment is read at every decision."""

    on: bool = True
    clock: Clock | None = None


_settings = _Settings()
_fixed: dict[str, str] = {}
_stores: dict[str, Store] = {}
_memo: dict[Any, Any] = {}  # decisions, so that a steady call costs one look-up
_n_change = 0  # number of times they were dropped


def choose(
    kernel: Kernel | str,
    key: tuple[Any, ...],
    candidates: Sequence[Any],
    make_trial: Callable[[], Trial],
    *,
    n_batch: int,
    device: Device = CPU,
    in_graph: bool = False,
    cold: bool = False,
    steps: int = 1,
) -> Any:
    """Pick a variant for a call.

    Parameters
    ----------
    kernel : Kernel or str
    key : tuple of str, int, float, bool
        All that determines validity and speed except the batch and the device: sizes, dtypes,
        macros.
    candidates : sequence of Candidate
        The plain one, which takes any batch, first.
    make_trial : callable
        Called only when times are needed. Allocates scratch (at most `SCRATCH_LIMIT` bytes, the
        same contents each time) and returns ``trial(candidate)``, which runs a candidate on it and
        returns the arrays that it wrote. The scratch lives as long as the trial.
    n_batch : int
        The exact batch of the call.
    device : Device
        Where the arrays are.
    in_graph : bool
        Whether trials allocate nothing once they have run, so that short ones can be captured.
    cold : bool
        Whether short ones that can be captured count twice, once of these with nothing in L2; this
        takes 64 MB besides.
    steps : int
        Of the batches between two powers of two for which times are stored, see `bucket`.

    Returns
    -------
    Candidate

    Raises
    ------
    DeviceError
        If no candidate takes the batch, or the fixed variant has been rejected.
    ParameterError
        If the fixed variant is not a candidate.
    """
    name = kernel if isinstance(kernel, str) else kernel.name
    memo_key = (name, key, n_batch, device)
    known = _memo.get(memo_key)
    if known is not None:
        return known
    with _lock, _device.using(device):
        measure = partial(_times, in_graph=True, cold=cold) if in_graph else _times
        given = candidates, make_trial, n_batch, device, measure
        choice, settled = _decide(kernel, name, key, bucket(n_batch, steps), *given)
        if settled:
            if len(_memo) >= _MEMO_LIMIT:
                _memo.clear()
            _memo[memo_key] = choice
        return choice


def n_changes() -> int:
    """Number of times decisions were dropped; a kept decision is valid until it grows."""
    return _n_change


def _drop_decisions() -> None:
    global _n_change
    _memo.clear()
    _n_change += 1


def _decide(
    kernel: Kernel | str,
    name: str,
    key: tuple[Any, ...],
    rounded: int,
    candidates: Sequence[Any],
    make_trial: Callable[[], Trial],
    n_batch: int,
    device: Device,
    measure: Measure,
) -> tuple[Any, bool]:
    """Pick a candidate, and return whether the choice holds for later calls."""
    store = _store(device)
    version = _version(kernel, name)
    rejected = store.rejected(name, version)
    valid = [c for c in candidates if c.valid(n_batch) and c.name not in rejected]
    if not valid:
        raise DeviceError(
            f"{name}: no variant takes a batch of {n_batch}; there are "
            f"{', '.join(c.name for c in candidates)}, rejected for other bits: "
            f"{', '.join(sorted(rejected)) or 'none'}"
        )
    fixed = _fixed_among(name, candidates, valid, rejected)
    if fixed is not None:
        return fixed, True
    record = store.record(name, version, key, rounded)
    if _may_time(device) and len(valid) > 1:
        untimed = any(c.name not in record.times for c in valid)
        unverified = _verifying() and not record.verified
        if untimed or unverified:
            if _capturing(device):
                return _fastest(valid, record), False
            with launch.not_recording():  # trials are not part of the call
                _measure(name, version, valid, make_trial, record, store, measure)
            rejected = store.rejected(name, version)
            valid = [c for c in valid if c.name not in rejected]
    return (_fastest(valid, record) if enabled() else valid[0]), True


def _fastest(valid: Sequence[Any], record: Record) -> Any:
    """Candidate with the least stored time; the first if no times are stored."""
    timed = {c.name: c for c in valid if c.name in record.times}
    return timed[fastest_name(record, list(timed))] if timed else valid[0]


def fastest_name(record: Record, among: Sequence[str] | None = None) -> str:
    """Name of the fastest variant of a record; ties go to the earlier one."""
    best, *others = list(record.times) if among is None else among
    for name in others:
        if record.times[name] < _MARGIN * record.times[best]:
            best = name
    return best


def _measure(
    name: str,
    version: str,
    valid: Sequence[Any],
    make_trial: Callable[[], Trial],
    record: Record,
    store: Store,
    measure: Measure,
) -> None:
    """Time the candidates on the current device; with RPUKIT_TUNE_VERIFY compare their bits."""
    if _verifying():
        bad = _different(valid, make_trial)
        for candidate in bad:
            store.reject(name, version, candidate.name)
            _log.warning(
                "%s: variant %s is rejected: its bits differ from those of %s on one input (%s)",
                name,
                candidate.name,
                valid[0].name,
                record.title,
            )
        valid = [c for c in valid if c not in bad]
        record.verified = True
    times = measure(valid, make_trial())
    record.times |= {c.name: float(x) for c, x in zip(valid, times, strict=True)}
    _log.info("tuned %s (%s): %s", name, record.title, record.times)
    store.save(record)


def _times(valid: Sequence[Any], trial: Trial, **how: bool) -> Sequence[float]:
    """Time each candidate's trial, by the injected clock if there is one."""
    runs = [partial(trial, candidate) for candidate in valid]
    if _settings.clock is None:
        return clock.gpu_times(runs, **how)
    return [_settings.clock(*pair) for pair in zip(valid, runs, strict=True)]


def _different(valid: Sequence[Any], make_trial: Callable[[], Trial]) -> list[Any]:
    """Candidates whose outputs differ in bits from those of the first."""
    expected, bad = None, []
    for candidate in valid:
        outputs = [_device.to_numpy(a).tobytes() for a in (make_trial()(candidate) or ())]
        if not outputs:
            raise DeviceError(
                "RPUKIT_TUNE_VERIFY=1 compares the arrays that a trial returns, and this one "
                f"returned none for variant {candidate.name}"
            )
        if expected is None:
            expected = outputs
        elif outputs != expected:
            bad.append(candidate)
    return bad


def bucket(n_batch: int, steps: int = 1) -> int:
    """The batch rounded up to a power of two, or to one of ``steps`` equal steps between two."""
    power = 1 << max(int(n_batch) - 1, 0).bit_length()
    step = max(1, power // 2 // steps)
    return -(-int(n_batch) // step) * step if steps > 1 else power


def _fixed_among(
    name: str, candidates: Sequence[Any], valid: Sequence[Any], rejected: set[str]
) -> Any:
    wanted = _fixed.get(name)
    if wanted is None:
        return None
    if wanted in rejected:
        raise DeviceError(
            f"{name}: variant {wanted!r} is fixed, but its bits were found to differ"
        )
    if wanted not in [c.name for c in candidates]:
        names = ", ".join(c.name for c in candidates)
        raise ParameterError(f"{name}: variant {wanted!r} is fixed, but there are only {names}")
    # For a batch that the fixed variant does not take, the plain one is used.
    return next((c for c in valid if c.name == wanted), valid[0])


def _version(kernel: Kernel | str, name: str) -> str:
    """Hash of the kernel's source; times of another version are not used."""
    text = kernel.source() if isinstance(kernel, Kernel) else source.load(name)
    return text.digest()[:16]


def _store(device: Device) -> Store:
    label = clock.device_name(device)
    if label not in _stores:
        # Choices made by an injected clock, or on the CPU, are for this process alone.
        lasting = device.kind == "gpu" and _settings.clock is None
        short = hashlib.sha256(label.encode()).hexdigest()[:12]
        _stores[label] = Store(label, f"tune-{short}.json" if lasting else None)
    return _stores[label]


def _may_time(device: Device) -> bool:
    return enabled() and (device.kind == "gpu" or _settings.clock is not None)


def _capturing(device: Device) -> bool:
    return device.kind == "gpu" and clock.capturing()


def _verifying() -> bool:
    return _switched("RPUKIT_TUNE_VERIFY", default=False)


def enabled() -> bool:
    """Whether variants are chosen by their times."""
    return _settings.on and _switched("RPUKIT_TUNE", default=True)


def _switched(name: str, *, default: bool) -> bool:
    """Read a variable of the environment that is 0 or 1; an empty one is as none."""
    value = os.environ.get(name, "")
    if value not in ("", "0", "1"):
        raise ParameterError(f"{name}: got {value!r}, need 0 or 1")
    return default if value == "" else value == "1"


def switch(on: bool) -> None:
    """Turn tuning on or off for this process."""
    with _lock:
        _settings.on = on
        _drop_decisions()


def fix(kernel: str, variant: str | None) -> None:
    """Fix the variant of a kernel wherever it is valid; None lets the tuner choose again."""
    with _lock:
        if variant is None:
            _fixed.pop(kernel, None)
        else:
            _fixed[kernel] = variant
        _drop_decisions()


def fixed() -> dict[str, str]:
    """Kernels whose variant is fixed."""
    return dict(_fixed)


def records() -> list[tuple[str, Record]]:
    """Records of all devices of this machine."""
    with _lock:
        for index in range(_device.gpu_count()):
            _store(Device("gpu", index))
        return [(store.device, record) for store in _stores.values() for record in store.records()]


def rejections() -> list[tuple[str, str]]:
    """Kernels and variants that were rejected because their bits differ."""
    with _lock:
        return sorted({pair for store in _stores.values() for pair in store.rejections()})


def forget() -> None:
    """Drop everything in memory: the state of a new process."""
    with _lock:
        _stores.clear()
        _drop_decisions()


@contextmanager
def use_clock(measure: Clock) -> Iterator[None]:
    """Time candidates by ``measure(candidate, run) -> seconds``, on the CPU as well.

    For tests: choices are made afresh, without a GPU, and are forgotten afterwards.
    """
    with _lock:
        before = (dict(_stores), _settings.clock)
        _stores.clear()
        _drop_decisions()
        _settings.clock = measure
    try:
        yield
    finally:
        with _lock:
            _stores.clear()
            _drop_decisions()
            _stores.update(before[0])
            _settings.clock = before[1]
