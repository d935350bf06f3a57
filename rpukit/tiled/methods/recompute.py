"""Gradient checkpointing: results of the forward pass are computed again instead of kept."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rpukit._checks import Maybe, Whole, takes
from rpukit.errors import PlanError
from rpukit.tiled import ops
from rpukit.tiled.graph.make import with_nodes
from rpukit.tiled.ir import Node, Training
from rpukit.tiled.machine import Hierarchy
from rpukit.tiled.methods._select import forward_nodes
from rpukit.tiled.planner.addresses import Block, pack, peak
from rpukit.tiled.planner.lifetimes import Lifetimes

__all__ = ["recompute"]

_TRIES = 8  # targets below the limit, if what lives at once fits but cannot be packed


@takes(limit=Maybe(Whole(1)))
def recompute(training: Training, levels: Hierarchy, *, limit: int | None = None) -> Training:
    """Recompute results of the forward pass during the backward pass, where memory asks for it.

    Parameters
    ----------
    training : Training
    levels : Hierarchy
        Its outermost level holds all values between ops; its cycle model says what a node costs.
    limit : int, optional
        Bytes that the values may take; default: those of the outermost level.

    Returns
    -------
    Training
        The given one if its values fit. Otherwise with nodes that run again right before the
        backward pass needs their results, so that these need no memory in between. All bits are
        those of the given training.

    Raises
    ------
    PlanError
        If the values do not fit whatever is recomputed.

    Notes
    -----
    Nodes are chosen one by one: the one that saves most, of the bytes above the limit summed over
    all steps, for each cycle that it takes. A node whose inputs are gone recomputes these too.

    Source: Chen et al., Training deep nets with sublinear memory cost, 2016.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> b = rk.tiled.Builder("deep")
    >>> x, y = b.input("x", (64, 16)), b.input("y", (64, 16))
    >>> h = x
    >>> for k in range(6):
    ...     h = b.apply("Relu", b.apply("Gemm", h, b.parameter(f"w{k}", np.eye(16))))
    >>> training = b.training(b.apply("MSELoss", h, y))
    >>> levels = rk.tiled.siracusa_l2()
    >>> small = rk.tiled.methods.recompute(training, levels, limit=42_000)
    >>> [rk.tiled.plan(one, levels, buffering="double").peaks["L2"] for one in (training, small)]
    [49168, 40976]
    """
    most = levels.levels[0].bytes if limit is None else limit
    space = _Space(training, levels)
    target = most
    for _ in range(_TRIES):
        chosen = space.chosen(target)
        made = space.rewritten(chosen) if chosen else training
        blocks = [
            Block(v.name, v.lower, v.upper, levels.levels[0].rounded(v.bytes))
            for v in Lifetimes(made).values.values()
        ]
        need = peak(blocks, pack(blocks))
        if need <= most:
            return made
        target -= max(need - most, 1)
    raise PlanError(
        f"{training.train.name}: values of {most} bytes cannot be packed; need {need} bytes, a "
        "smaller batch, or fewer trained parameters (methods.freeze)"
    )


@dataclass(frozen=True, slots=True)
class _Run:
    """A node at its place in the run, and the values that it reads and makes."""

    node: Node
    reads: tuple[str, ...]
    makes: tuple[str, ...]


class _Space:
    """Which nodes may run again, and what a choice of them does to the memory."""

    def __init__(self, training: Training, levels: Hierarchy) -> None:
        self.training, self.level = training, levels.levels[0]
        graph = training.train
        life = Lifetimes(training)
        self.values, self.roots = life.values, life.roots[0]
        forward = {node.name for node in forward_nodes(training)}
        self.order = [step.node for step in life.steps if step.program == 0]
        self.forward = {node.name for node in self.order} & forward
        self.makers = {name: node for node in graph.nodes for name in node.outputs if name}
        changed = {
            self.roots[source]
            for node in graph.nodes
            if not ops.find(node.op).view
            for _, source in ops.find(node.op).aliases(node)
        }
        self.cycles = {
            step.node.name: levels.compute.cycles(
                step.space.macs(step.space.whole), step.space.elements(step.space.whole)
            )
            for step in life.steps
            if step.node.name in self.forward
            and changed.isdisjoint(self.roots[n] for n in step.node.inputs if n)
        }
        ends = {self.roots[name] for name in graph.outputs}
        later = {
            self.roots[name]
            for node in self.order
            if node.name not in self.forward
            for name in node.inputs
            if name
        }
        pure = [
            node
            for node in self.order
            if node.name in self.cycles
            and ends.isdisjoint(self.roots[n] for n in node.outputs if n)
        ]
        used = {
            n.name for n in pure if not later.isdisjoint(self.roots[k] for k in n.outputs if k)
        }
        self.free = [node.name for node in pure if node.name in used]
        self.passing = {node.name for node in pure} - used  # only the forward pass reads them

    def chosen(self, target: int) -> set[str]:
        """Choose nodes until the values that live at once fit."""
        done: set[str] = set()
        live = self.live(done)
        while (live > target).any():
            excess, spent = np.maximum(live - target, 0).sum(), self.spent(done)
            best = (0.0, "")
            for name in self.free:
                if name not in done:
                    more = done | {name}
                    saved = excess - np.maximum(self.live(more) - target, 0).sum()
                    gain = float(saved) / (self.spent(more) - spent + 1)
                    best = max(best, (gain, name))
            if not best[1]:
                raise PlanError(
                    f"{self.training.train.name}: {int(live.max())} bytes live at once with "
                    f"{len(done)} nodes recomputed, need at most {target}: a smaller batch, or "
                    "fewer trained parameters (methods.freeze)"
                )
            done.add(best[1])
            live = self.live(done)
        return self.needed(done, target)

    def needed(self, done: set[str], target: int) -> set[str]:
        """Drop choices that later ones have made superfluous, the most expensive first."""
        for name in sorted(done, key=lambda one: (-self.cycles[one], one)):
            if (self.live(done - {name}) <= target).all():
                done = done - {name}
        return done

    def spent(self, done: Collection[str]) -> int:
        """Count the cycles of the nodes that run again."""
        again: dict[str, str] = {}
        late = (node for node in self.order if node.name not in self.forward)
        return sum(self.cycles[one.name] for n in late for one in self.before(n, done, again))

    def live(self, done: Collection[str]) -> np.ndarray:
        """Count the bytes that live at each step of the training graph."""
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        n = 0
        for run in self.runs(done):
            for name in run.makes:
                first.setdefault(name, n)
                last[name] = n
            for name in run.reads:
                last[name] = n
            n += 1
        changes = np.zeros(n + 1, np.int64)
        for name, value in self.values.items():
            if value.lasting:
                changes[0] += self.level.rounded(value.bytes)
            elif name in last:
                begin = 0 if value.given else first[name]
                changes[begin] += self.level.rounded(value.bytes)
                if not value.wanted:
                    changes[last[name] + 1] -= self.level.rounded(value.bytes)
        for name in last.keys() - self.values.keys():  # recomputed ones
            size = self.level.rounded(self.values[name.removeprefix("again/")].bytes)
            changes[first[name]] += size
            changes[last[name] + 1] -= size
        return np.cumsum(changes[:-1])

    def runs(self, done: Collection[str]) -> Iterator[_Run]:
        """Iterate over nodes in order, with those that run again where they are needed."""
        again: dict[str, str] = {}
        for node in self.order:
            if node.name not in self.forward:
                for other in self.before(node, done, again):
                    makes = tuple(f"again/{self.roots[n]}" for n in other.outputs if n)
                    yield _Run(other, self.read(other, again), makes)
            makes = tuple(self.roots[n] for n in node.outputs if n)
            late = again if node.name not in self.forward else {}
            yield _Run(node, self.read(node, late), makes)

    def read(self, node: Node, again: Mapping[str, str]) -> tuple[str, ...]:
        roots = (self.roots[name] for name in node.inputs if name)
        return tuple(f"again/{root}" if root in again else root for root in roots)

    def before(
        self, node: Node, done: Collection[str], again: dict[str, str], inner: bool = False
    ) -> list[Node]:
        """List the nodes that have to run again before a node, and note their results."""
        found: list[Node] = []
        for name in filter(None, node.inputs):
            root = self.roots[name]
            maker = self.makers.get(root)
            if maker is None or root in again:
                continue
            if maker.name not in done and not (inner and maker.name in self.passing):
                continue
            found += self.before(maker, done, again, inner=True)
            found.append(maker)
            again.update((self.roots[made], maker.name) for made in maker.outputs if made)
        return found

    def rewritten(self, done: Collection[str]) -> Training:
        """Write the chosen nodes again, where they are needed."""
        graph = self.training.train
        again: dict[str, str] = {}
        copies: dict[str, str] = {}
        forward = {node.name for node in forward_nodes(self.training)}
        nodes: list[Node] = []
        for node in graph.nodes:
            if node.name in forward or ops.find(node.op).view:
                nodes.append(node)
                continue
            for other in self.before(node, done, again):
                nodes += self.copied(other, again, copies)
            nodes += self.viewed(node.inputs, again, copies)
            nodes.append(replace(node, inputs=_renamed(node.inputs, copies)))
        return replace(self.training, train=with_nodes(graph, nodes))

    def copied(self, node: Node, again: Mapping[str, str], copies: dict[str, str]) -> list[Node]:
        """Copy a node under new names, with the views that it reads."""
        made = self.viewed(node.inputs, again, copies)
        inputs = _renamed(node.inputs, copies)
        copies.update((name, f"{name}/again") for name in node.outputs if name)
        outputs = _renamed(node.outputs, copies)
        return [*made, Node(f"{node.name}/again", node.op, inputs, outputs, node.attributes)]

    def viewed(
        self, names: Sequence[str], again: Mapping[str, str], copies: dict[str, str]
    ) -> list[Node]:
        """Copy views of recomputed results."""
        made: list[Node] = []
        for name in filter(None, names):
            maker = self.makers.get(name)
            if name in copies or maker is None or self.roots[name] not in again:
                continue
            if ops.find(maker.op).view:
                made += self.viewed(maker.inputs, again, copies)
                made += self.copied(maker, again, copies)
        return made


def _renamed(names: Sequence[str], copies: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(copies.get(name, name) for name in names)
