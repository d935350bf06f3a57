"""Model of the times of tiles of float32 and float64, fitted on an H200."""

from __future__ import annotations

from typing import NamedTuple

from rpukit.gemm._tiles.real_tiles import (
    AT_ONCE,
    IN_TURNS,
    SEGMENT,
    STREAMED,
    Problem,
    RealTile,
    shares,
)


class Pace(NamedTuple):
    """Times of a tile, in microseconds: a launch's, and those of a step of the sum."""

    start: float
    step: float  # of a block, however few there are on its multiprocessor
    work: float  # of a block, where a multiprocessor has many
    ragged: float  # what rows that do not end at multiples of 16 bytes add, as a part
    upright: float  # what a b whose columns lie across its lines adds, as a part
    edge: float  # what tiles that reach beyond the result add, as a part
    long: float  # what sums of several segments in one block add, as a part


# Fitted on an H200 to 5400 times of products of random shapes (tools/scan_tiles.py, fit_paces.py;
# seeds 8, 911 to 913, 2003, 2011, 2012, 6001, 6002, and those that lost of 1031, 1033 and 2110);
# tiles of one row to 390 times of 120 products of one row; those after them, which are of float32,
# to 2200 times of 94 products (seeds 2312 to 2314 and losers of others).
_PACES = {
    "128x128": Pace(5.08, 0.0922, 0.087, 0.0648, 0.0493, 0.0237, -0.0124),
    "64x128": Pace(4.34, 0.0445, 0.0403, 0.0234, 0.0492, 0.0361, 0.00928),
    "64x64": Pace(3.81, 0.0244, 0.0236, 0.0376, 0.0787, -0.00363, 0.00024),
    "32x64": Pace(3.36, 0.0174, 0.0126, 0.164, 0.156, 0.09, -0.0267),
    "32x32": Pace(2.4, 0.00806, 0.00896, 0.203, 0.0548, 0.139, -0.0386),
    "8x64": Pace(2.85, 0.00618, 0.00654, 0.123, 0.1, 0.183, 0.000377),
    "4x32": Pace(1.9, 0.00314, 0.00511, 0.186, 0.0, 0.0358, 0.0342),
    "4x16": Pace(2.21, 0.00374, 0.00283, 0.271, -0.235, 0.0, 0.0),
    "4x8 few": Pace(1.82, 0.00271, 0.00236, 0.0644, -0.126, -0.0571, 0.0212),
    "4x16 few": Pace(2.0, 0.00315, 0.00337, 0.217, -0.143, -0.087, -0.103),
    "8x16 few": Pace(2.24, 0.00331, 0.00335, 0.124, -0.0912, -0.0371, -0.0291),
    "8x32 few": Pace(2.19, 0.00479, 0.00477, 0.259, 0.000418, -0.0889, 0.0227),
    "16x16 few": Pace(2.05, 0.00457, 0.00506, 0.143, 0.000573, -0.109, 0.0315),
    "16x32 few": Pace(2.0, 0.00615, 0.00682, 0.304, 0.106, -0.0662, -0.035),
    "16x64 few": Pace(2.32, 0.0102, 0.0102, 0.103, 0.17, -0.0842, -0.0415),
    "32x64 few": Pace(3.75, 0.019, 0.0158, 0.249, 0.0206, 0.00309, 0.0),
    "128x64": Pace(4.86, 0.0468, 0.0428, 0.0008, 0.0482, 0.000385, 0.00539),
    "96x64": Pace(4.39, 0.0356, 0.0323, 0.0065, 0.0583, 0.046, 0.0184),
    "32x64 flat": Pace(3.34, 0.013, 0.0124, 0.0969, 0.0939, 0.0678, 0.0181),
    "64x32": Pace(4.19, 0.0137, 0.0126, 0.167, 0.152, 0.0269, 0.00015),
    "16x32": Pace(4.0, 0.0115, 0.00466, 0.0791, 0.154, 0.0852, 0.00934),
    "4x64": Pace(1.94, 0.0055, 0.0068, 0.25, 0.0, 0.0244, -0.0304),
    "4x128": Pace(1.76, 0.0104, 0.0115, 0.136, 0.0, 0.0167, -0.00339),
    "4x128 flat": Pace(2.04, 0.0126, 0.0126, 0.135, 0.0, 0.0144, -0.0119),
    "1x32 few": Pace(1.71, 0.00333, 0.00431, 0.1, -0.0827, 0.00206, -0.015),
    "1x64 few": Pace(1.49, 0.0037, 0.00701, 0.306, 0.0485, 0.0623, 0.00501),
    "24x64": Pace(2.76, 0.0108, 0.01, 0.221, 0.0465, 0.0693, 0.00716),
    "40x64": Pace(3.02, 0.0174, 0.0151, 0.198, 0.0963, 0.0588, 0.00453),
    "48x64": Pace(2.84, 0.0184, 0.0175, 0.104, 0.139, 0.0597, 0.00453),
    "48x64 dense": Pace(3.23, 0.0196, 0.0167, 0.104, 0.138, 0.0506, 0.00942),
    "64x48": Pace(4.73, 0.0193, 0.0175, 0.117, 0.0805, 0.0646, 0.0127),
    "56x64": Pace(3.81, 0.0226, 0.0197, 0.247, 0.1, 0.0573, 0.0101),
}
_DOUBLE_PACES = {
    "128x128 tensor": Pace(7.56, 0.0683, 0.0727, 0.111, 0.0451, 0.0943, 0.0412),
    "128x64 tensor": Pace(2.86, 0.045, 0.0351, 0.0969, 0.038, 0.0403, 0.0388),
    "64x64 tensor": Pace(3.1, 0.0226, 0.0173, 0.134, 0.0753, 0.0626, 0.0598),
    "32x32 tensor": Pace(2.77, 0.00757, 0.00775, 0.261, 0.068, -0.0387, 0.0419),
    "64x64": Pace(3.37, 0.0529, 0.051, 0.0, 0.0376, 0.0704, -0.0126),
    "32x32": Pace(2.64, 0.0248, 0.0229, 0.0767, 0.014, 0.038, 0.03),
    "4x32": Pace(2.29, 0.00704, 0.00845, -0.0138, 0.0326, 0.0563, 0.0),
    "16x8 tensor few": Pace(2.12, 0.00355, 0.0035, 0.0563, 0.0177, 0.00637, 0.037),
    "16x16 tensor few": Pace(2.19, 0.00414, 0.00484, 0.0823, 0.0248, 0.102, -0.0948),
    "16x32 tensor few": Pace(1.82, 0.00571, 0.00622, 0.287, 0.122, 0.0145, 0.00699),
    "16x64 tensor few": Pace(1.84, 0.00871, 0.0108, 0.298, 0.212, -0.0848, 0.0),
    "32x32 tensor few": Pace(2.83, 0.0106, 0.0102, 0.0209, 0.068, -0.0607, 0.000378),
    "64x32 tensor few": Pace(2.01, 0.0214, 0.0214, 0.0632, -0.0834, 0.125, -0.02),
    "4x16 few": Pace(2.09, 0.00443, 0.00468, -0.0116, -0.059, 0.0722, -0.0224),
    "80x64 tensor": Pace(2.97, 0.0336, 0.0234, 0.0992, 0.0583, 0.0642, 0.0499),
    "48x64 tensor": Pace(3.47, 0.0166, 0.0143, 0.128, 0.0442, 0.0711, 0.0565),
    "32x64 tensor": Pace(2.69, 0.0162, 0.0115, 0.141, 0.126, 0.00981, 0.000913),
    "64x32 tensor": Pace(2.88, 0.0142, 0.0111, 0.183, 0.0337, 0.000693, 0.000503),
    "96x128 tensor": Pace(3.5, 0.0481, 0.0523, 0.0658, 0.0801, 0.0553, 0.0398),
    "32x64 tensor deep": Pace(2.7, 0.0152, 0.0124, 0.168, 0.0971, 0.0182, 0.0517),
    "4x64": Pace(2.29, 0.0111, 0.0141, -0.0248, 0.0, 0.0426, 0.0182),
    "4x64 flat": Pace(2.49, 0.0144, 0.0144, -0.0202, 0.0, 0.0458, 0.0182),
    "48x64 tensor flat": Pace(4.93, 0.0184, 0.0142, 0.16, 0.0192, 0.0554, 0.0458),
    "1x32 few": Pace(1.71, 0.0051, 0.00779, 0.00552, 0.0563, 0.00843, -0.00946),
    "1x64 few": Pace(1.62, 0.006, 0.0161, 0.0175, 0.0128, 0.00882, -0.00636),
}
# What blocks that share a tile add to segments of 1024 terms, as a part, by the bytes of an
# element and their number.
_SHARING = {
    4: {1: 0.0, 2: 0.153, 4: 0.153, 8: 0.185, IN_TURNS: 0.08, AT_ONCE: 0.0, STREAMED: 0.04},
    8: {1: 0.0, 2: 0.181, 4: 0.197, 8: 0.278, IN_TURNS: 0.08, AT_ONCE: 0.0, STREAMED: 0.1},
}
# Microseconds on an H200: of each turn that nothing hides, by the bytes of an element; of the last
# block, which adds all segments.
_TURN, _AT_ONCE = {4: 1.2, 8: 2.3}, 1.5
_READ, _KEPT = 1e5, 2e6  # bytes a microsecond that the last block reads; that all blocks write
_WRITTEN = 4e6  # bytes a microsecond of results
# Microseconds of the begin and end of each further round of blocks, by the bytes of an element and
# whether some threads only copy.
_ROUND = {(4, False): 0.9, (4, True): 1.5, (8, False): 0.7, (8, True): 2.3}
_PASS = 3.0  # microseconds of passing chains on
# Part of an H200's multiprocessors that clusters of 4 and 8 blocks can fill.
_CLUSTERED = {4: 0.93, 8: 0.91}


def microseconds(tile: RealTile, split: int, problem: Problem, n_multi: int) -> float:
    """Estimate the microseconds of a product from the rounds in which its blocks fill a GPU."""
    m, n, k, size, trans_a, trans_b, whole, segment = problem
    pace = (_DOUBLE_PACES if size == 8 else _PACES)[tile.name]
    parts = problem.parts(split)
    each = -(-problem.n_segment // parts)  # segments of a block
    chain, mean = min(k, each * segment), k / min(parts, problem.n_segment)
    count = tile.count(m, n)
    together = tile.together(trans_a, trans_b, size, tile.room(problem.n_segment, split, 0))
    full = together * int(n_multi * _CLUSTERED.get(split, 1.0))  # blocks of a round
    rounds, blocks = divmod(count * parts, full)
    rest = -(-blocks // n_multi)
    if split > 0:
        time = rounds * max(pace.step * chain, together * pace.work * mean)
        if rest:
            time += max(pace.step * chain, rest * pace.work * mean)
    elif split == STREAMED:
        full = shares(tile, problem, n_multi)
        time = max(pace.work, pace.step * n_multi / full) * count * k / n_multi
    else:  # blocks of whole segments first, then those of the last one
        n_whole, terms = count * (k // segment), k % segment
        most = max(-(-n_whole // n_multi) * segment, count * k / n_multi)
        if terms and -n_whole % n_multi < count:
            most += terms / 2
        time = max(pace.step * min(k, segment) * (rounds + (blocks > 0)), pace.work * most)
    part = 1 + (0 if whole else pace.ragged) + (pace.upright if trans_b else 0)
    if m % tile.rows or n % tile.columns:
        part += pace.edge
    if problem.n_segment > 1 and split == 1:
        part += pace.long
    sharing = _SHARING[size][split] * min(1.0, SEGMENT / segment)  # once a segment
    start = pace.start
    if split == IN_TURNS:  # of the blocks that end together
        start += _TURN[size] * min(problem.n_segment, 1 + full / count)
    if split == STREAMED:
        start += _PASS
    if split == AT_ONCE or (split == STREAMED and problem.n_segment > 1):
        last = problem.n_segment * tile.rows * tile.columns * size
        start += _AT_ONCE + last / _READ + last * count / _KEPT
    further = max(0.0, count * parts / full - (split != STREAMED))  # a share has a part more
    start += _ROUND[size, tile.copiers > 0] * further + m * n * size / _WRITTEN
    return start + (part + sharing) * time
