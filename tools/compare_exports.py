"""Compare gradients of models that PyTorch exports with autograd.

Usage: ``python tools/compare_exports.py [--full | --record | --notebook] [--float64] [--plan]
[name ...]``.

Each model of `export_models.py` is exported with its loss by both of PyTorch's exporters, read by
`rpukit.tiled` and differentiated, and the loss and the gradients are compared with those of
autograd in float64: the largest error of the loss, relative, and of the gradients, relative to
the largest of all. With ``--plan`` a plan over 64 kB of L1 computes them, else each op as a whole.
``--full`` reads the models in the sizes of their papers, without computing. ``--record`` writes
the files of `tests/tiled/exports`, ``--notebook`` the model of `notebooks/04_tiled_training.py`,
whose output is the scores. PyTorch has to be installed, and onnxscript for the newer
exporter.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import logging
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from export_models import FULL, MODELS
from torch import nn

from rpukit import tiled
from rpukit.errors import RpukitError

KINDS = ("dynamo=False", "dynamo=True")
NOTEBOOK = Path(__file__).resolve().parents[1] / "notebooks" / "digits.onnx"
FOLDER = Path(__file__).resolve().parents[1] / "tests" / "tiled" / "exports"
# Models that the tests read, small ones of either exporter
RECORDED = {
    "vit": 1,
    "gpt, fused attention": 0,
    "lstm, two ways": 1,
    "gru": 0,
    "autoencoder": 1,
    "activations": 1,
    "sums": 0,
}


class WithLoss(nn.Module):
    def __init__(self, net, loss):
        super().__init__()
        self.net, self.loss = net, loss

    def forward(self, x, t):
        return self.loss(self.net(x), t)


def made(model):
    """Make a net with its loss, and a batch."""
    torch.manual_seed(0)
    net = WithLoss(model.net(), model.loss()).train(model.training)
    for p in net.parameters():
        p.data += 0.1 * torch.randn_like(p)
    x = torch.randint(0, model.n_class, model.shape) if model.tokens else torch.randn(model.shape)
    with torch.no_grad():
        y = copy.deepcopy(net.net)(x)
    t = torch.randint(0, model.n_class, y.shape[:1]) if model.n_class else torch.rand(y.shape)
    if isinstance(net.loss, nn.CrossEntropyLoss) and net.loss.weight is not None:
        t[1::3] = -100
    return net, x, t


def export(net, x, t, path, kind, training):
    """Write a model as an exporter does, with its parameters left as they are."""
    names = {"input_names": ["x", "t"], "output_names": ["loss"]}
    quiet = io.StringIO()
    with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        if kind == KINDS[1]:
            torch.onnx.export(
                net, (x, t), path, dynamo=True, optimize=False, external_data=False, **names
            )
        else:
            mode = torch.onnx.TrainingMode
            names["training"] = mode.TRAINING if training else mode.PRESERVE
            more = {"opset_version": 17, "do_constant_folding": False}
            torch.onnx.export(net, (x, t), path, dynamo=False, **more, **names)


def in_file(net, path):
    """Names of the parameters in the file, and which ones of the net they are."""
    there = {tensor.name for tensor in onnx.load(path, load_external_data=False).graph.initializer}
    found, seen = {}, set()
    for name, p in net.named_parameters(remove_duplicate=False):
        if name in there and id(p) not in seen:
            found[name] = p
            seen.add(id(p))
    return found


def computed(training, x, t, planned):
    """Loss and gradients: by a plan, as the step that a rate of 1 makes, or op by op."""
    graph = training.train
    values = {"x": x.numpy(), "t": t.numpy()}
    values = {name: v.astype(graph.tensors[name].dtype) for name, v in values.items()}
    if planned:
        trainer = tiled.plan(training, tiled.siracusa_l2(l1=64_000)).trainer(training)
        loss, ends = trainer.step((values["x"], values["t"])), trainer.parameters()
        return loss, {k: training.initial[k] - ends[k] for k in training.parameters}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        empty = np.full(tensor.shape, tensor.dtype == "bool", tensor.dtype)
        values.setdefault(name, training.initial.get(name, empty))
    ends = graph.run(values)
    totals = {n.inputs[0]: n.outputs[0] for n in graph.nodes if n.op == "InPlaceAccumulatorV2"}
    slopes = {
        key: ends[totals[total]]
        for key, total in zip(training.parameters, training.accumulators, strict=True)
    }
    return float(ends[training.loss]), slopes


def compare(model, kind, folder, dtypes, planned):
    """Export a model, differentiate it, and compare with autograd; one cell of text per dtype."""
    net, x, t = made(model)
    path = folder / "model.onnx"
    wide = copy.deepcopy(net).double()
    try:
        export(net, x, t, path, kind, model.training)
    except Exception as error:  # of any class: the exporter's
        return [f"not exported: {str(error).splitlines()[0][:60]}"]
    found = in_file(net, path)
    same = dict(zip(map(id, net.parameters()), wide.parameters(), strict=True))
    want = wide(*(value.double() if value.is_floating_point() else value for value in (x, t)))
    want.backward()
    slopes = {key: same[id(p)].grad.numpy() for key, p in found.items()}
    most = max(np.abs(slope).max() for slope in slopes.values())
    more = {"batch_statistics": model.training and kind == KINDS[1]}
    cells = []
    for dtype in dtypes:
        builder = tiled.Builder.from_onnx(path, list(found), dtype=dtype, **more)
        training = builder.training("loss", tiled.SGD(lr=1.0), fuse=False)
        loss, ends = computed(tiled.fuse(training), x, t, planned)
        far = max(np.abs(ends[key] - slope).max() for key, slope in slopes.items())
        error = abs(loss - float(want)) / abs(float(want))
        cells.append(f"{error:.0e}, {far / most:.0e}")
    lost = len(list(net.parameters())) - len(found)
    return [*cells, f"{len(training.train.nodes)} ops"] + ([f"{lost} lost"] if lost else [])


def read(model, kind, folder):
    """Export a model of full size and read it, with gradients."""
    net, x, t = made(model)
    path = folder / "model.onnx"
    export(net, x, t, path, kind, model.training)
    began = time.perf_counter()
    builder = tiled.Builder.from_onnx(path, list(in_file(net, path)))
    training = builder.training("loss", tiled.SGD(lr=1.0), fuse=False)
    seconds = time.perf_counter() - began
    size = sum(value.size for value in training.initial.values())
    return [f"{size / 1e6:.1f} M parameters", f"{len(training.train.nodes)} ops, {seconds:.1f} s"]


def strip(path):
    """Remove what exporters note in a file: stacks of calls, with paths."""
    model = onnx.load(path)
    for part in (model, model.graph, *model.graph.node, *model.graph.value_info,
                 *model.graph.input, *model.graph.output, *model.graph.initializer,
                 *model.functions):  # fmt: skip
        part.doc_string = ""
        del part.metadata_props[:]
    onnx.save(model, path)


def record_scores(name, path):
    """Write a model without its loss, as users export it."""
    net, x, _ = made(MODELS[name])
    more = {"opset_version": 17, "do_constant_folding": False, "dynamo": False}
    names = {"input_names": ["x"], "output_names": ["scores"]}
    mode = torch.onnx.TrainingMode.PRESERVE
    torch.onnx.export(net.net.train(False), (x,), path, training=mode, **more, **names)
    strip(path)


def record(name):
    """Write a model, a batch, and autograd's loss and projections of the gradients."""
    net, x, t = made(MODELS[name])
    x, t = (v.half().float() if v.is_floating_point() else v for v in (x, t))
    wide, kind = copy.deepcopy(net).double(), KINDS[RECORDED[name]]
    path = FOLDER / f"{name.replace(', ', '_').replace(' ', '_')}.onnx"
    export(net, x, t, path, kind, MODELS[name].training)
    strip(path)
    found = in_file(net, path)
    same = dict(zip(map(id, net.parameters()), wide.parameters(), strict=True))
    want = wide(*(value.double() if value.is_floating_point() else value for value in (x, t)))
    want.backward()
    values = {key: v.numpy() for key, v in (("x", x), ("t", t))}
    values = {k: v.astype("f2") if v.dtype.kind == "f" else v for k, v in values.items()}
    values["loss"] = want.item()
    slopes = {key: same[id(p)].grad.numpy() for key, p in found.items()}
    values["most"] = max(np.abs(slope).max() for slope in slopes.values())
    rng = np.random.default_rng(0)
    ways = {key: rng.normal(size=slope.shape) for key, slope in sorted(slopes.items())}
    values["slopes"] = np.array([np.vdot(slopes[key], ways[key]) for key in sorted(slopes)])
    np.savez_compressed(path.with_suffix(".npz"), names=sorted(slopes), **values)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="*", help="default: all")
    parser.add_argument("--full", action="store_true", help="read models of full size")
    parser.add_argument("--float64", action="store_true", help="compute in float64 too")
    parser.add_argument("--plan", action="store_true", help="compute by a plan")
    parser.add_argument("--notebook", action="store_true", help="write the notebook's model")
    parser.add_argument("--record", action="store_true", help="write the files of the tests")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.ERROR)
    if args.notebook:
        record_scores("digits, training", NOTEBOOK)
        return 0
    if args.record:
        FOLDER.mkdir(exist_ok=True)
        for name in args.name or RECORDED:
            record(name)
        return 0
    models = FULL if args.full else MODELS
    dtypes = ["float32", "float64"] if args.float64 else ["float32"]
    with tempfile.TemporaryDirectory() as folder:
        for name in args.name or models:
            for kind in KINDS:
                try:
                    if args.full:
                        cells = read(models[name], kind, Path(folder))
                    else:
                        own = (models[name], kind, Path(folder), dtypes, args.plan)
                        cells = compare(*own)
                except RpukitError as error:
                    cells = [str(error)]
                print(" | ".join([f"{name:32}", f"{kind:12}", *cells]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
