"""Call everything public with hostile arguments: a typed error and nothing changed, or a result.

    python tools/fuzz_arguments.py --cases 100000 --seconds 600 --seed 1
    python tools/fuzz_arguments.py --seed 1 --case 17

A case takes one public call with arguments that work (`tools/fuzz_calls.py`), and exchanges one or
two of them. What may follow: a valid result, with finite numbers in everything that lasts, or an
error of `rpukit.errors` with the object unchanged (TypeError only for arguments that the call does
not have). Warnings, other errors, changed or non-finite state, objects of parameters without a
hash, and calls of more than five seconds of a processor are failures. Each kind is printed once,
as a program.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime
import math
import re
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import rpukit as rk  # noqa: E402
from tools import fuzz_calls  # noqa: E402

VALUES = """None|'a'|''|b'x'|float('nan')|float('inf')|-float('inf')|1e300|-1e300|3.5e38|3e38|-3e38
1e30|1e-30|1e-320|0|0.0|-0.0|-1|-0.5|1|2|0.5|7|1.5|2**31|2**40|2**63|-2**63|2**64|10**400|True
False|np.float32(0.5)|np.float64('nan')|np.float16(0.1)|np.longdouble(0.5)|np.int8(1)
np.uint64(2**63)|np.bool_(True)|np.array(0.1)|np.array(1)|np.array(np.nan)|np.array('a')
np.array(None)|np.array([[1.0]])|np.datetime64('2026-01-01')|np.timedelta64(1)
datetime.date(2026, 1, 1)|[]|[1]|(0.1,)|()|(1, 2, 3)|(2, 3)|(2.5, 3)|(-1, 3)|(2**31, 2**31)
(2**63, 2)|{}|{'a': 1}|{1, 2}|object()|int|1j|np.complex64(1)|np.zeros((2, 3))
np.full((2, 3), np.nan)|np.full((2, 3), 3e38)|Int(1)|Float(0.5)|Str('x')|Fraction(1, 2)
Decimal('0.5')|range(3)|print|...|np.ma.masked|[None]|slice(1)|[[1, 2], [3]]|'NONE'|'cpu'
'gpu'|'gpu:99'|'gpu:x'|np.empty((0, 3))|Hostile()|[float('nan')]|'\\ud800'|np.str_('a')
np.bytes_(b'a')|np.void(b'a')|[[]]|memoryview(b'abc')|np.float32|'float64'|'f2'|'>f4'|NoCopy()
(1e300,)|(3e38, 3e38)|['a', 'b']|[[1e300]]|'NaN'|'1'|X|XI|M|W|D|rk.SoftBounds()|rk.Ideal()
rk.Stream(1, 2)|rk.Stream.from_seed(3)|TRAINING|PLAN|rk.IOParameters()|rk.circuits.Gaussian()
np.random.default_rng(1)|np.random.SeedSequence(3)|iter([1, 2])|(i for i in 'ab')|Path('x')
10**9"""
HOSTILE = [text for line in VALUES.splitlines() for text in line.split("|")]
FORMS = [
    "({})[:1]",
    "({})[..., :1]",
    "({}) * 3e38",
    "({}) * 1e30",
    "np.asarray({}, 'f8') * 1e300",
    "np.asarray({}) + 0j",
    "np.asarray({}).astype(object)",
    "np.asarray({}).T",
    "({})[0]",
    "({})[None]",
    "({})[:0]",
    "list({})",
    "np.full(np.shape({}), np.nan)",
    "np.asarray({}).astype('>f8')",
    "-({})",
    "np.asarray({}).astype(str)",
    "np.asarray({}).astype('M8[s]')",
    "np.asarray({}).astype(np.float16)",
    "np.ma.array({}, mask=True)",
    "np.asarray({}).tolist()",
    "np.asarray({}) * 2**40",
    "np.asarray({}).astype(bool)",
    "Foreign({})",
]


class Int(int):
    """A subclass of int."""


class Float(float):
    """A subclass of float."""


class Str(str):
    """A subclass of str."""

    __slots__ = ()


class Hostile:
    """Raises whatever is asked of it."""

    def _no(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("hostile")

    __float__ = __int__ = __index__ = __len__ = __iter__ = __array__ = __bool__ = __str__ = _no
    __eq__ = __lt__ = __gt__ = __le__ = __ge__ = __repr__ = _no  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class NoCopy:
    """Says that it has memory to share, and refuses."""

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("no")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class Foreign:
    """An array that only DLPack reads."""

    def __init__(self, array: Any) -> None:
        self._array = np.asarray(array)

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class Slow(BaseException):
    """A case took too long."""


def world() -> dict[str, Any]:
    """Return the names that cases use."""
    rng = np.random.default_rng(5)
    names: dict[str, Any] = {
        "np": np, "rk": rk, "datetime": datetime, "Fraction": Fraction, "Decimal": Decimal,
        "Path": Path, "Int": Int, "Float": Float, "Str": Str, "Hostile": Hostile,
        "NoCopy": NoCopy, "Foreign": Foreign,
        "X": rng.uniform(-1, 1, (5, 3)).astype("f4"),
        "D": rng.uniform(-1, 1, (5, 2)).astype("f4"),
        "W": rng.uniform(-0.5, 0.5, (2, 3)).astype("f4"),
        "XI": rng.integers(0, 2, (5, 4)),
        "XN": rng.normal(size=(5, 4)).astype("f4"),
        "M": rng.random((5, 4)) < 0.5,
        "Y": np.array([0, 1, 0, 1, 1]),
        "RESPONSE": rk.studies.pulse_response(rk.SoftBounds(), [1, 1, -1], n_cell=3),
        "CYCLES": rk.studies.PulseResponse(abs(np.arange(60) - 30.0), [-1] * 30 + [1] * 29),
        "DATA": rk.studies.example_pulses("reram"),
    }  # fmt: skip
    names["FIT"] = rk.studies.fit_device(names["DATA"])

    def builder() -> Any:
        b = rk.tiled.Builder("net")
        x, target = b.input("x", (4, 8)), b.input("target", (4, 2))
        y = b.apply("Gemm", x, b.parameter("w", np.full((2, 8), 0.1)), transB=1)
        b.apply("MSELoss", y, target, name="loss")
        return b

    def plan_of(optimiser: Any) -> Any:
        training = builder().training("loss", optimiser)
        return rk.tiled.plan(training, rk.tiled.siracusa_l2()).trainer(training)

    def levels_of(part: Any) -> Any:
        usual = rk.tiled.siracusa_l2()
        if isinstance(part, rk.tiled.Compute):
            return dataclasses.replace(usual, compute=part)
        return dataclasses.replace(usual, levels=(part, *usual.levels[1:]))

    counted = rk.Circuit(rk.circuits.hmm(4, 2, 3), seed=1)
    counted.accumulate(names["XI"])
    names["COUNTED"], names["ROOT"] = counted, lambda circuit: circuit.layout.roots[0]
    names["BUILDER"], names["PLAN_OF"], names["LEVELS_OF"] = builder, plan_of, levels_of
    names["TRAINING"] = builder().training("loss", rk.tiled.SGD())
    names["PLAN"] = rk.tiled.plan(names["TRAINING"], rk.tiled.siracusa_l2())
    names["BATCH"] = (np.ones((4, 8), "f4"), np.ones((4, 2), "f4"))
    return names


def text_of(call: fuzz_calls.Call, arguments: dict[str, str]) -> str:
    """Write a call as a line of Python."""
    given = []
    for name, text in arguments.items():
        starred = name.startswith("*")
        given.append(text if starred else f"{name}={text}")
    target = call.path if not call.make else f"OBJ.{call.path.partition('.')[2]}"
    given.sort(key=lambda text: "=" in text.split("(")[0])
    return f"{target}({', '.join(g for g in given if g)})"


def mutated(call: fuzz_calls.Call, rng: np.random.Generator) -> str:
    """Exchange one or two arguments of a call."""
    arguments = dict(call.examples)
    names = [n for n, p in call.signature.parameters.items() if p.kind not in (2, 4)]
    names += [n for n in arguments if n.startswith("*")]
    for _ in range(1 + int(rng.random() < 0.3)):
        if not names:
            arguments["surplus"] = str(rng.choice(HOSTILE))
            break
        name = str(rng.choice(names))
        before = arguments.get(name, "None")
        if before[:1] in set("XDWMYn") and rng.random() < 0.5 and before != "None":
            text = str(rng.choice(FORMS)).format(before)
        else:
            text = str(rng.choice(HOSTILE))
        arguments[name] = f"w_max={text}" if name == "**arrays" else text
    return text_of(call, arguments)


def snapshot(thing: Any) -> Any:
    """Copy what lasts of an object: its arrays by name, and the rest as text."""
    if isinstance(thing, rk.tiled.Trainer):
        return "", thing.parameters(everything=True)
    if isinstance(thing, (type(None), rk.analog.AnalogTile)) or hasattr(thing, "state"):
        state = thing.state() if thing is not None else {"header": "", "arrays": {}}
        return repr(state["header"]), state["arrays"]
    if hasattr(thing, "T") and hasattr(thing.T, "state"):
        return snapshot(thing.T)
    return "", {}


def bad_arrays(arrays: dict[str, Any]) -> list[str]:
    """Name the arrays that hold NaN, or infinities other than logarithms of 0."""
    floats = {n: a for n, a in arrays.items() if np.asarray(a).dtype.kind == "f"}
    return [n for n, a in floats.items() if np.isnan(a).any() or np.isposinf(a).any()]


def same(one: Any, two: Any) -> bool:
    """Whether two snapshots are equal to the bit."""
    return one[0] == two[0] and all(
        one[1][n].tobytes() == two[1].get(n, np.empty(0)).tobytes() for n in one[1]
    )


def restored(names: dict[str, Any], kept: dict[str, bytes]) -> list[str]:
    """Give arrays of the world that a case changed their values again; returns their names."""
    wrong = [name for name, was in kept.items() if names[name].tobytes() != was]
    for name in wrong:
        array = names[name]
        array[...] = np.frombuffer(kept[name], array.dtype).reshape(array.shape)
    return wrong


def place_of(error: BaseException) -> str:
    """Name the last function of rpukit that an error passed; "" if the error is not ours.

    Not ours are errors of the arguments themselves, of Python for arguments that a call does not
    have, and of scikit-learn's own checks.
    """
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if f"{ROOT}/rpukit/" in f.filename]
    other = str(error) in ("hostile", "no") or "sklearn" in frames[-1].filename
    if isinstance(error, TypeError):
        other = other or re.search(r"unexpected keyword|positional|multiple values", str(error))
    if not ours or other or ours[-1].name == "__array__":  # whose dtype NumPy checks
        return ""
    last = ours[-1]
    return f"{Path(last.filename).relative_to(ROOT)}:{last.name}"


def of_callback(error: BaseException) -> bool:
    """Whether a callback of the user raised, which it may between two steps."""
    last = [f for f in traceback.extract_tb(error.__traceback__) if "/rpukit/" in f.filename][-1:]
    return any((f.line or "").startswith("progress(") for f in last)


def run(call: fuzz_calls.Call, line: str, names: dict[str, Any]) -> tuple[str, str]:
    """Run one case; return the kind of failure, or "", and the line that failed."""
    names = dict(names)
    if call.make:
        names["OBJ"] = eval(call.make, names)
    before, step = snapshot(names.get("OBJ")), line
    try:
        result = eval(line, names)
        if not call.make:
            names["OBJ"] = result
            params = getattr(type(result), "__dataclass_params__", None)
            if params is not None and params.frozen and params.eq:
                hash(result)
            for step in fuzz_calls.used(result):
                exec(step, names)
    except rk.errors.RpukitError as error:
        last = names.get("OBJ") if call.make else None
        if last is not None and not same(before, snapshot(last)):
            return f"changed by an error: {call.path} {type(error).__name__}", step
        return "", step
    except Slow:
        return f"slow: {call.path}", step
    except Exception as error:
        if of_callback(error):
            return "", step
        place = place_of(error)
        last = names.get("OBJ") if call.make else None
        if last is not None and not same(before, snapshot(last)):
            return f"changed by an error: {call.path} {type(error).__name__}", step
        return (f"{type(error).__name__}: {place}" if place else ""), step
    wrong = [n for o in ("OBJ", "TILE") for n in bad_arrays(snapshot_or_none(names.get(o)))]
    return (f"not finite: {call.path} {wrong[0]}" if wrong else ""), step


def run_in_time(
    call: fuzz_calls.Call, line: str, names: dict[str, Any], alarm: float
) -> tuple[str, str]:
    """Run one case for some seconds of a processor, as a machine may be busy."""
    signal.setitimer(signal.ITIMER_PROF, alarm, alarm)  # again, as callbacks from C lose one
    signal.setitimer(signal.ITIMER_REAL, 20 * alarm)
    try:
        return run(call, line, names)
    except Slow:
        return f"slow: {call.path}", line
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close("all")


def snapshot_or_none(thing: Any) -> dict[str, Any]:
    """Arrays of an object of the world, if it has any."""
    try:
        arrays: dict[str, Any] = snapshot(thing)[1]
    except rk.errors.RpukitError:
        return {}
    return arrays


@contextmanager
def limits(gibibytes: float) -> Iterator[None]:
    """Bound the memory of the process, and make alarms raise `Slow`; warnings are errors."""

    def stop(*_: Any) -> None:
        raise Slow

    was = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    alarms = (signal.SIGALRM, signal.SIGPROF)
    handlers = [signal.signal(one, stop) for one in alarms]
    resource.setrlimit(resource.RLIMIT_AS, (used + int(gibibytes * 2**30), was[1]))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # What studies say of measurements that do not suffice, which is no error.
            warnings.filterwarnings("ignore", "states: |.*do not determine", RuntimeWarning)
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, was)
        for one, handler in zip(alarms, handlers, strict=True):
            signal.signal(one, handler)


def fuzz(
    cases: range, seed: int, seconds: float = math.inf, only: str = "", alarm: float = 5
) -> tuple[int, dict[str, tuple[int, str]]]:
    """Run cases; return their number, and for each kind of failure how often and a program."""
    names, done = world(), 0
    table = [*fuzz_calls.calls(), *fuzz_calls.methods(fuzz_calls.OBJECTS, names)]
    table = [call for call in table if only in call.path]
    patient = re.compile(
        r"(max_rounds|n_read|n_epochs|rank)=|shape=memoryview"
    )  # repetitions, and images of a million points, take the time they take
    found: dict[str, tuple[int, str]] = {}
    kept = {name: a.tobytes() for name, a in names.items() if isinstance(a, np.ndarray)}
    begin = time.monotonic()
    with limits(6):
        for number in cases:
            if time.monotonic() - begin > seconds:
                break
            rng = np.random.default_rng([seed, number])
            call = table[int(rng.integers(len(table)))]
            line, done = mutated(call, rng), done + 1
            kind, step = run_in_time(call, line, names, alarm)
            if kind.startswith("slow"):  # the first call may have compiled what it uses
                kind, step = run_in_time(call, line, names, alarm)
            if kind.startswith("slow") and patient.search(line):
                kind = ""
            changed = restored(names, kept)
            if changed and "out=" not in line:
                kind, step = kind or f"changed an argument: {call.path} {changed}", line
            if kind:
                make = f"OBJ = {call.make}\n" if call.make else ""
                after = "" if step == line else f"\n{step}"
                text = f"{make}{line if call.make else 'OBJ = ' + line}{after}  # case {number}"
                count, first = found.get(kind, (0, text))
                found[kind] = (count + 1, first)
    return done, found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="run this case alone")
    parser.add_argument("--only", default="", help="calls whose path contains this")
    options = parser.parse_args()
    cases = range(options.cases) if options.case is None else range(options.case, options.case + 1)
    done, found = fuzz(cases, options.seed, options.seconds, options.only)
    for kind, (count, text) in sorted(found.items()):
        print(f"\n# {kind} ({count} times)\n{text}", flush=True)
    failed = sum(count for count, _ in found.values())
    kinds = collections.Counter(kind.partition(":")[0] for kind in found)
    print(f"\n{done} cases, {failed} failures of {len(found)} kinds: {dict(kinds)}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
