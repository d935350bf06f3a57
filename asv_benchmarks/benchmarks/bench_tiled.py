"""Plans of training graphs: time to plan, modelled cycles, a step on a CPU or a GPU."""

from itertools import pairwise

import numpy as np

import rpukit as rk
from rpukit import tiled

from .common import DEVICES, require


def autoencoder(batch=4, widths=(128, 64, 32, 64, 128)):
    """A training graph, and a mini-batch."""
    rng = np.random.default_rng(0)
    b = tiled.Builder("autoencoder")
    h, target = b.input("x", (batch, widths[0])), b.input("y", (batch, widths[-1]))
    for k, (n_in, n_out) in enumerate(pairwise(widths)):
        w = b.parameter(f"w{k}", rng.normal(size=(n_out, n_in)) / np.sqrt(n_in))
        h = b.apply("Gemm", h, w, transB=1)
        if k < len(widths) - 2:
            h = b.apply("Relu", h)
    data = rng.normal(size=(batch, widths[0])).astype(np.float32)
    return b.training(b.apply("MSELoss", h, target), tiled.SGD(lr=0.1)), (data, data)


class Planning:
    params = [["single", "double", "auto"], [16_000, 64_000]]
    param_names = ["buffering", "l1"]

    def setup(self, buffering, l1):
        self.training, _ = autoencoder()
        self.levels, self.buffering = tiled.siracusa_l2(l1=l1), buffering

    def time_plan(self, *_):
        tiled.plan(self.training, self.levels, buffering=self.buffering)

    def track_cycles(self, *_):
        """Cycles of a step and an update in the model."""
        return tiled.plan(self.training, self.levels, buffering=self.buffering).cycles

    track_cycles.unit = "cycles"


class Methods:
    params = [["everything", "last layer", "rows", "recomputed", "int8", "stored"]]
    param_names = ["method"]

    def setup(self, method):
        training, batch = autoencoder(16)
        levels = tiled.siracusa_l2(l1=16_000)
        if method == "last layer":
            training = tiled.methods.train_last(training, 1)
        elif method == "rows":
            training = tiled.methods.train_rows(training, {"w*": (0, 8)})
        elif method == "recomputed":
            training = tiled.methods.recompute(training, levels, limit=223_000)
        elif method == "stored":
            training = tiled.methods.store_narrow(training, others="fp16")
        elif method == "int8":
            b = tiled.Builder("product")
            h, y = b.input("x", (16, 128)), b.input("y", (16, 128))
            loss = b.apply("MSELoss", b.apply("Gemm", h, b.parameter("w", np.eye(128))), y)
            training = tiled.methods.quantise(b, [batch]).training(loss, tiled.SGD(lr=0.1))
        self.plan, self.batch = tiled.plan(training, levels), batch
        self.trainer = self.plan.trainer(training)
        self.trainer.step(batch)

    def time_step(self, _):
        self.trainer.step(self.batch)

    def track_cycles(self, _):
        """Cycles of a step and an update in the model."""
        return self.plan.cycles

    def track_memory(self, _):
        """Bytes of all values between ops."""
        return self.plan.peaks["L2"]

    track_cycles.unit = "cycles"
    track_memory.unit = "bytes"


class FusedChains:
    """Gates and Gelu by tanh in float32, op by op and as one op of one kernel."""

    params = [["op by op", "fused"], DEVICES]
    param_names = ["ops", "device"]

    def setup(self, ops, device):
        require(device)
        b = tiled.Builder("chains")
        x, y = b.input("x", (512, 1024)), b.input("y", (512, 1024))
        h = b.apply("Mul", x, b.apply("Sigmoid", b.apply("Mul", x, b.parameter("a", [1.5]))))
        cube = b.apply("Mul", b.apply("Mul", h, h), b.apply("Mul", h, b.constant("c", [0.0447])))
        inner = b.apply("Mul", b.apply("Add", h, cube), b.constant("s", [0.798]))
        h = b.apply("Mul", h, b.apply("Add", b.apply("Tanh", inner), b.constant("one", [1.0])))
        training = b.training(b.apply("MSELoss", h, y), tiled.SGD(lr=0.1))
        if ops == "fused":
            training = tiled.fuse(training)
        self.plan = tiled.plan(training, tiled.gpu(64_000_000), buffering="double")
        self.batch = tuple(np.random.default_rng(0).normal(size=(2, 512, 1024)).astype("f4"))
        self.trainer = self.plan.trainer(training, device=device)
        self.trainer.step(self.batch)

    def time_step(self, *_):
        self.trainer.step(self.batch)

    def track_moved(self, *_):
        """Bytes over the link in a step."""
        return sum(self.plan.programs[0].moved["device"])

    track_moved.unit = "bytes"


class PlanningDeep:
    """Chains of equal layers: time and memory should grow in proportion to the depth."""

    params = [4, 16, 64]
    param_names = ["depth"]

    def setup(self, depth):
        self.training, _ = autoencoder(8, (64,) * (depth + 1))
        self.levels = tiled.siracusa_l2(l1=32_000, l2=1 << 30)

    def time_plan(self, _):
        tiled.plan(self.training, self.levels)

    def peakmem_plan(self, _):
        tiled.plan(self.training, self.levels)

    def track_instructions(self, _):
        plan = tiled.plan(self.training, self.levels)
        return sum(len(program.instructions) for program in plan.programs)


class Step:
    params = [["single", "auto", "auto, fused"], DEVICES]
    param_names = ["buffering", "device"]

    def setup(self, buffering, device):
        require(device)
        wide = (512, 1024, 1024, 512)
        self.training, self.batch = autoencoder(64, wide)
        buffering, *fused = buffering.split(", ")
        if fused:
            self.training = tiled.fuse_updates(tiled.fuse_activations(self.training))
        plan = tiled.plan(self.training, tiled.gpu(4_000_000), buffering=buffering)
        self.trainer = plan.trainer(self.training, device=device)
        self.trainer.step(self.batch)

    def time_step(self, *_):
        self.trainer.step(self.batch)

    def track_same_bits(self, buffering, device):
        """1 where the loss has the bits of the graph computed without tiles."""
        start = dict(self.training.initial, x=self.batch[0], y=self.batch[1])
        names = zip(self.training.accumulators, self.training.parameters, strict=False)
        start |= {own: np.zeros_like(self.training.initial[name]) for own, name in names}
        start[self.training.reset] = np.array([True])
        graph = self.training.train
        untiled = graph.run({name: start[name] for name in graph.inputs})
        plan, training = self.trainer.plan, self.training
        loss = plan.trainer(training, device=device).step(self.batch)
        rk.testing.assert_same_bits(np.float32(loss), untiled[training.loss].reshape(()))
        return 1


class OutOfCore:
    """A step over a quarter of the state, beside the longest of its parts alone."""

    params = [64, 1024]
    param_names = ["batch"]

    def setup(self, batch):
        require("gpu")
        training = tiled.fuse_activations(autoencoder(batch, (2048,) * 5)[0])
        training = tiled.fuse_updates(training)
        state = sum(value.nbytes for value in training.initial.values())
        plan = tiled.plan(training, tiled.gpu(state // 4))
        executor = tiled.GpuExecutor(plan, (training.train, training.optimiser))
        self.found = executor.measure(0)

    def track_time_of_a_step(self, _):
        return self.found.total

    track_time_of_a_step.unit = "s"

    def track_step_over_longest_part(self, _):
        return self.found.total / max(self.found.compute, self.found.inward, self.found.outward)
