"""Probabilistic circuits: structures, exact likelihoods, flows, learning.

A circuit is built of node vectors (`inputs`, `product`, `sum`) or by a structure (`hmm`, `hclt`,
`rat_spn`, `pd`, `mixture`), and compiled by `Circuit`.
"""

from rpukit.circuits.circuit import Circuit
from rpukit.circuits.graph.continuous import (
    Exponential,
    Gamma,
    LogNormal,
    StudentT,
    VonMises,
)
from rpukit.circuits.graph.counted import Geometric, NegativeBinomial
from rpukit.circuits.graph.densities import Gaussian, Poisson
from rpukit.circuits.graph.evaluated import FunctionLeaf, register_leaf
from rpukit.circuits.graph.leaves import (
    Bernoulli,
    Binomial,
    Categorical,
    DiscreteLogistic,
    Indicator,
    Leaf,
    MaskedCategorical,
)
from rpukit.circuits.graph.nodes import (
    InputNodes,
    Nodes,
    ProductNodes,
    SumNodes,
    inputs,
    product,
    sum,
)
from rpukit.circuits.graph.normal import MultivariateNormal
from rpukit.circuits.graph.reblock import reblock
from rpukit.circuits.graph.transform import deepcopy, grow, merge, prune
from rpukit.circuits.partials import Partials
from rpukit.circuits.queries.propagation import Rule
from rpukit.circuits.structures.chow_liu import chow_liu_tree, hclt, mutual_information, pd_hclt
from rpukit.circuits.structures.distil import distil
from rpukit.circuits.structures.hmm import hmm, mixture, rat_spn
from rpukit.circuits.structures.learn_spn import learn_spn
from rpukit.circuits.structures.region_graph import pd, random_regions, region_graph
from rpukit.circuits.structures.trees import chow_liu, chow_liu_mixture

__all__ = [
    "Bernoulli",
    "Binomial",
    "Categorical",
    "Circuit",
    "DiscreteLogistic",
    "Exponential",
    "FunctionLeaf",
    "Gamma",
    "Gaussian",
    "Geometric",
    "Indicator",
    "InputNodes",
    "Leaf",
    "LogNormal",
    "MaskedCategorical",
    "MultivariateNormal",
    "NegativeBinomial",
    "Nodes",
    "Partials",
    "Poisson",
    "ProductNodes",
    "Rule",
    "StudentT",
    "SumNodes",
    "VonMises",
    "chow_liu",
    "chow_liu_mixture",
    "chow_liu_tree",
    "deepcopy",
    "distil",
    "grow",
    "hclt",
    "hmm",
    "inputs",
    "learn_spn",
    "merge",
    "mixture",
    "mutual_information",
    "pd",
    "pd_hclt",
    "product",
    "prune",
    "random_regions",
    "rat_spn",
    "reblock",
    "region_graph",
    "register_leaf",
    "sum",
]
