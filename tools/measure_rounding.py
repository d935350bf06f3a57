"""Print where the rounding of gradients of low-rank adapters comes from.

    python tools/measure_rounding.py [--seeds N]

A compact transformer of the size of Deeploy's CCT_LoRA (images of 3 x 8 x 8, width 32, two blocks
of two heads, adapters of rank 4 on the products q, k, v and of the heads) is trained on one image.
Its gradients in float32 are compared with those in float64: the largest difference over the
largest gradient of each tensor, in units of 2**-24. The rows are the graph as it runs, with one
chain of fused steps for each sum; the same with products by NumPy, whose sums have several parts;
the same with some ops, or all, done in float64 and rounded once; and PyTorch, if it is installed.
"""

import argparse
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rpukit import tiled
from rpukit.tiled import methods, ops
from rpukit.tiled.ir import BaseGraph, Node
from rpukit.tiled.runtime.reference import run_tile

WIDTH, TOKENS, HEADS, RANK, BLOCKS = 32, 16, 2, 4, 2
KINDS = {
    "products": ("Gemm", "MatMul"),
    "normalisations": ("LayerNormalization", "LayerNormGradX", "RowsProduct", "RowsSum"),
    "softmax": ("Softmax", "SoftmaxGrad", "LogSoftmax", "CrossEntropyGrad"),
    "Gelu": ("Gelu", "GeluGrad"),
    "sums": ("ReduceSum", "Add"),
}


def network(seed: int, dtype: str) -> tuple[tiled.Training, dict[str, np.ndarray]]:
    """Build the transformer with adapters, and an image with its label."""
    rng = np.random.default_rng(seed)
    b = tiled.Builder("cct_lora", dtype=dtype)
    x, labels = b.input("x", (1, 3, 8, 8)), b.input("labels", (1,), np.int64)

    def weight(name: str, *shape: int) -> str:
        return b.parameter(name, rng.normal(size=shape) / np.sqrt(shape[0]))

    conv = b.constant("conv", rng.normal(size=(WIDTH, 3, 3, 3)) / np.sqrt(27))
    h = b.apply("Relu", b.apply("Conv", x, conv, pads=(1, 1, 1, 1)))
    h = b.apply("MaxPool", h, kernel_shape=(2, 2), strides=(2, 2))
    h = b.apply("Transpose", b.apply("Reshape", h, shape=(1, WIDTH, TOKENS)), perm=(0, 2, 1))
    for k in range(BLOCKS):
        ones, zeros = np.ones(WIDTH), np.zeros(WIDTH)
        scale, shift = b.constant(f"s{k}", ones), b.constant(f"t{k}", zeros)
        n = b.apply("LayerNormalization", h, scale, shift)
        parts = []
        for name in "qkv":
            y = b.apply("MatMul", n, weight(f"{name}{k}", WIDTH, WIDTH), name=f"{name}{k}/out")
            y = b.apply("Reshape", y, shape=(1, TOKENS, HEADS, WIDTH // HEADS))
            parts.append(
                b.apply("Transpose", y, perm=(0, 2, 3, 1) if name == "k" else (0, 2, 1, 3))
            )
        scores = b.apply("Mul", b.apply("MatMul", parts[0], parts[1]), b._sketch.number(0.25))
        y = b.apply("MatMul", b.apply("Softmax", scores, axis=-1), parts[2])
        y = b.apply(
            "Reshape", b.apply("Transpose", y, perm=(0, 2, 1, 3)), shape=(1, TOKENS, WIDTH)
        )
        h = b.apply("Add", h, b.apply("MatMul", y, weight(f"p{k}", WIDTH, WIDTH)))
        n = b.apply("LayerNormalization", h, scale, shift)
        y = b.apply("Gelu", b.apply("MatMul", n, weight(f"up{k}", WIDTH, 2 * WIDTH)))
        h = b.apply("Add", h, b.apply("MatMul", y, weight(f"down{k}", 2 * WIDTH, WIDTH)))
    h = b.apply("ReduceMean", h, axes=(1,), keepdims=0)
    loss = b.apply(
        "SoftmaxCrossEntropyLoss", b.apply("MatMul", h, weight("fc", WIDTH, 10)), labels
    )
    small = methods.add_lora(b, "[qkvp][01]", rank=RANK, alpha=8.0, seed=seed)
    training = methods.freeze(small.training(loss), "up?", "down?", "fc")
    start = {name: np.asarray(v) for name, v in training.initial.items()}
    start |= {n: rng.normal(size=v.shape) * 0.1 for n, v in start.items() if n.endswith("_b")}
    start |= {"x": rng.normal(size=(1, 3, 8, 8)), "labels": np.array([seed % 10])}
    return training, start


def gradients(
    graph: BaseGraph, wide: BaseGraph, values: dict[str, np.ndarray], way: Callable[[Node], str]
) -> dict[str, np.ndarray]:
    """Run a graph node by node; `way` may say "wide", float64 rounded once, or "blas"."""
    done = {**graph.constants, **values}
    for node in graph.nodes:
        op = ops.find(node.op)
        if op.view:
            done[node.outputs[0]] = done[node.inputs[0]].reshape(
                graph.tensors[node.outputs[0]].shape
            )
            continue
        if node.op == "InPlaceAccumulatorV2":
            done[node.outputs[0]] = done[node.inputs[1]]
            continue
        assert isinstance(op, ops.Tiled)
        if way(node) == "blas":
            done[node.outputs[0]] = by_blas(node, done)
            continue
        of = wide if way(node) == "wide" else graph
        space = op.space(node, of.tensors)
        buffers: list[np.ndarray | None] = [None] * op.buffers
        made = {}
        for operand in space.operands:
            tensor = of.tensors[operand.tensor]
            if operand.mode == "out":
                made[operand.tensor] = np.empty(tensor.shape, tensor.dtype)
                buffers[operand.slot] = made[operand.tensor].reshape(-1)
            else:
                part = tuple(slice(*r) for r in space.rectangle(operand, space.whole))
                value = done[operand.tensor].astype(tensor.dtype)[part]
                buffers[operand.slot] = np.ascontiguousarray(value).reshape(-1)
        run_tile(node, of.tensors, space.whole, buffers)
        done |= {name: v.astype(graph.tensors[name].dtype) for name, v in made.items()}
    return {n.outputs[0].split("_grad.")[0]: done[n.outputs[0]] for n in graph.nodes
            if n.op == "InPlaceAccumulatorV2"}  # fmt: skip


def by_blas(node: Node, done: dict[str, np.ndarray]) -> np.ndarray:
    """Compute a product by NumPy."""
    a, b = (done[name] for name in node.inputs[:2])
    turned = [node.attributes.get(key, 0) for key in ("transA", "transB")]
    a, b = (v.swapaxes(-1, -2) if t else v for v, t in zip((a, b), turned, strict=True))
    made = a @ b * np.float32(node.attributes.get("alpha", 1.0))
    return made + done[node.inputs[2]] if len(node.inputs) > 2 and node.inputs[2] else made


def by_torch(
    values: dict[str, np.ndarray], constants: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Gradients of the same network by PyTorch's autograd in float32."""
    import torch
    from torch.nn import functional as f

    t = {
        k: torch.tensor(np.asarray(v, np.float32))
        for k, v in {**constants, **values}.items()
        if k != "labels"
    }
    own = [name for name in values if "/lora_" in name]
    for name in own:
        t[name].requires_grad_()

    def product(x, name):
        return x @ t[name] + 8.0 / RANK * (x @ t[f"{name}/lora_a"]) @ t[f"{name}/lora_b"]

    h = f.max_pool2d(torch.relu(f.conv2d(t["x"], t["conv"], padding=1)), 2)
    h = h.reshape(1, WIDTH, TOKENS).transpose(1, 2)
    for k in range(BLOCKS):
        n = f.layer_norm(h, (WIDTH,))
        q, key, v = (
            product(n, f"{c}{k}").reshape(1, TOKENS, HEADS, -1).transpose(1, 2) for c in "qkv"
        )
        y = torch.softmax(q @ key.transpose(2, 3) * 0.25, -1) @ v
        h = h + product(y.transpose(1, 2).reshape(1, TOKENS, WIDTH), f"p{k}")
        h = h + f.gelu(f.layer_norm(h, (WIDTH,)) @ t[f"up{k}"]) @ t[f"down{k}"]
    f.cross_entropy(h.mean(1) @ t["fc"], torch.tensor(values["labels"])).backward()
    return {name: t[name].grad.numpy() for name in own}


def errors(found: dict[str, np.ndarray], exact: dict[str, np.ndarray]) -> np.ndarray:
    """Largest difference of each factor over its largest gradient, in units of 2**-24."""
    names = sorted(name for name in exact if "/lora_" in name)
    far = [np.abs(found[n] - exact[n]).max() / np.abs(exact[n]).max() for n in names]
    return np.array(far) * 2.0**24


def main() -> None:
    """Measure the errors and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    ways: dict[str, Callable[[Node], str]] = {"as it runs": lambda node: ""}
    products = KINDS["products"]
    ways["products by NumPy, float32"] = lambda node: "blas" if node.op in products else ""
    for label, kinds in KINDS.items():
        ways[f"{label} rounded once"] = lambda node, kinds=kinds: "wide" * (node.op in kinds)
    ways["all ops rounded once"] = lambda node: "wide"
    found: dict[str, list[np.ndarray]] = {}
    for seed in range(args.seeds):
        (narrow, start), (wide, _) = network(seed, "float32"), network(seed, "float64")
        short = {k: v if k == "labels" else np.asarray(v, np.float32) for k, v in start.items()}
        long = {k: v if k == "labels" else v.astype(np.float64) for k, v in short.items()}
        constants = {k: np.asarray(v, np.float32) for k, v in narrow.train.constants.items()}
        full = {k: v.astype(np.float64) for k, v in constants.items()}
        graph, constant = narrow.train, replace(wide.train, constants=full)
        exact = gradients(constant, constant, long, lambda node: "")
        for label, way in ways.items():
            got = gradients(graph, wide.train, short, way)
            found.setdefault(label, []).append(errors(got, exact))
        with suppress(ImportError):
            own = errors(by_torch(short, constants), exact)
            found.setdefault("PyTorch, float32", []).append(own)
    print("| gradients of the factors | median error | largest | first row over it: 5 to 95 % |")
    print("|---|---|---|---|")
    first = np.array(found["as it runs"])
    for label, rows in found.items():
        low, high = np.quantile(first / np.array(rows), [0.05, 0.95])
        middle, most = np.median(rows), np.max(rows)
        print(f"| {label} | {middle:.1f} | {most:.1f} | {low:.2f} to {high:.2f} |")


if __name__ == "__main__":
    main()
