"""One source that holds all its mutants, each behind a number: one run of the compiler for all.

`switched` writes the edits of a file as code that looks at ``rk_mutant``, which is 0 for the
source without an edit. A comparison ``a < b`` becomes ``a < rk_switch<17, 0>() > b``, whose
operators have the precedence of the one that they stand for; a fused step calls a function that
picks one of two; a statement is put behind a condition. What decides types, constants or arguments
of templates cannot wait for the run: `switched` leaves it out; such a mutant is compiled alone.
``rk_differed`` becomes 1 where the edit made a difference: a comparison with another outcome, a
fused step with another value, a statement that was left out. ``rk_seen`` notes for all mutants at
once where they would have made one, in a run of the source without an edit; of fused steps only if
``rk_mutant`` is -1, since that takes time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mutants import FMA, LOOP, TURNED, WAIT, Mutant

MOST_MUTANTS = 4096  # of a source with its headers
PRELUDE = """
extern "C" __attribute__((visibility("default"))) int rk_mutant, rk_differed;
extern "C" __attribute__((visibility("default"))) unsigned char rk_seen[MOST_MUTANTS];
int rk_mutant = 0, rk_differed = 0;
unsigned char rk_seen[MOST_MUTANTS] = {};
#define RK_MUTANT_INLINE inline __attribute__((always_inline))
template <int K> RK_MUTANT_INLINE bool rk_is() { return rk_mutant == K; }
template <int K> RK_MUTANT_INLINE bool rk_now() {
    rk_seen[K] = 1;
    return rk_is<K>() && (rk_differed = 1);
}
template <int K> RK_MUTANT_INLINE bool rk_turned(bool matters) {
    if (matters) rk_now<K>();
    return rk_is<K>();
}
template <int K> RK_MUTANT_INLINE int rk_one() { return !rk_now<K>(); }
template <int K, int OP> struct rk_switch {};
template <int K, int OP, class A> struct rk_left {
    A a;
    template <class B> RK_MUTANT_INLINE bool operator>(B b) const {
        bool other = a == b && rk_now<K>();
        if constexpr (OP == 0) return (a < b) != other;
        else if constexpr (OP == 1) return (a <= b) != other;
        else if constexpr (OP == 2) return (a > b) != other;
        else return (a >= b) != other;
    }
};
template <int K, int OP, class A>
RK_MUTANT_INLINE rk_left<K, OP, A> operator<(A a, rk_switch<K, OP>) { return {a}; }
template <int K, class T> RK_MUTANT_INLINE T rk_either(T is, T other) {
    const bool zeros = is == 0 && __builtin_signbit(is) != __builtin_signbit(other);
    if ((is == other && !zeros) || (is != is && other != other)) return is;
    return rk_now<K>() ? other : is;
}
#define RK_FUSED(k, f) \\
    [](auto a_, auto b_, auto c_) { \\
        using T_ = decltype(f(a_, b_, c_)); \\
        T_ is_ = f(a_, b_, c_); \\
        return rk_is<k>() || rk_mutant < 0 ? rk_either<k>(is_, T_(a_ * b_ + c_)) : is_; \\
    }
#define RK_VALUE(k, f) [](auto v_) { return rk_now<k>() ? decltype(f(v_))(v_) : f(v_); }
""".replace("MOST_MUTANTS", str(MOST_MUTANTS))
Numbered = tuple[int, Mutant]


def switched(text: str, edits: Sequence[Numbered]) -> tuple[str, set[int]]:
    """Write a file with its mutants; returns the text, and which numbers it holds."""
    lines, held = text.split("\n"), set[int]()
    by_line: dict[int, list[Numbered]] = {}
    for number, mutant in edits:
        by_line.setdefault(mutant.line, []).append((number, mutant))
    for line, some in by_line.items():
        old = lines[line - 1]
        bare = old.strip()
        indent = len(old) - len(old.lstrip())
        new, done = _rewritten(bare, 0, len(bare), some)
        lines[line - 1] = " " * indent + new
        held |= done
    return "\n".join(lines), held


def _rewritten(bare: str, begin: int, end: int, edits: Sequence[Numbered]) -> tuple[str, set[int]]:
    """Characters `begin` to `end` of a line, with the edits that lie inside them."""
    inside = [(k, m) for k, m in edits if begin <= m.begin and m.end <= end]
    inside.sort(key=lambda pair: (pair[1].begin, -pair[1].end))
    parts, held, at = list[str](), set[int](), begin
    for number, mutant in inside:
        if mutant.begin < at:
            continue  # inside the one before, which has rewritten it
        more = [(k, m) for k, m in inside if k != number]
        made = _one(bare, number, mutant, more)
        if made is None:
            continue
        text, stop, done = made
        parts += [bare[at : mutant.begin], text]
        held |= done
        at = stop
    parts.append(bare[at:end])
    return "".join(parts), held


def _one(
    bare: str, number: int, mutant: Mutant, others: Sequence[Numbered]
) -> tuple[str, int, set[int]] | None:
    """An edit as code: the text, the end of what it stands for, the numbers that it holds."""
    old = bare[mutant.begin : mutant.end]
    if old in TURNED:
        at = list(TURNED).index(old)
        return f"< rk_switch<{number}, {at}>() >", mutant.end, {number}
    if old in (" - 1", " + 1") and not mutant.text:
        return f"{old[:3]}rk_one<{number}>()", mutant.end, {number}
    if old.startswith(">> "):
        return f">> (rk_now<{number}>() ? 63 : 32)", mutant.end, {number}
    if old == "*status || ":
        return f"(!(*status && rk_now<{number}>()) && *status) || ", mutant.end, {number}
    if old.startswith("__syncthreads_"):
        return f"RK_VALUE({number}, {old})", mutant.end, {number}
    fused = FMA.match(old)
    if fused:
        return f"(RK_FUSED({number}, {fused[0]}))", mutant.begin + fused.end(), {number}
    loop = LOOP.match(old)
    if loop:
        return _loop(bare, number, mutant, loop, others)
    if old.endswith(";") and mutant.text == ";":
        return _statement(bare, number, mutant, others)
    return None


def _loop(
    bare: str, number: int, mutant: Mutant, loop: re.Match[str], others: Sequence[Numbered]
) -> tuple[str, int, set[int]]:
    """A loop that runs backwards, with the edits of its bounds."""
    kind, name = loop[1], loop[2]
    (first, in_first), (stop, in_stop) = (
        _rewritten(bare, mutant.begin + loop.start(g), mutant.begin + loop.end(g), others)
        for g in (3, 4)
    )
    here = mutant.begin + loop.end(3)
    test, in_test = _rewritten(bare, here + 2, mutant.begin + loop.end(4), others)
    text = (
        f"for ({kind} {name} = rk_turned<{number}>(({stop}) - ({first}) > 1) "
        f"? ({stop}) - 1 : ({first}); "
        f"rk_is<{number}>() ? {name} >= ({first}) : ({test}); "
        f"rk_is<{number}>() ? --{name} : ++{name})"
    )
    return text, mutant.end, {number} | in_first | in_stop | in_test


def _statement(
    bare: str, number: int, mutant: Mutant, others: Sequence[Numbered]
) -> tuple[str, int, set[int]]:
    """A statement that may be left out; a wait also has its edits as further statements."""
    old = bare[mutant.begin : mutant.end]
    inner = [(k, m) for k, m in others if mutant.begin <= m.begin and m.end <= mutant.end]
    held = {number}
    if not WAIT.match(old):
        new, held_inside = _rewritten(bare, mutant.begin, mutant.end, inner)
        return f"{{ if (!rk_now<{number}>()) {{ {new} }} }}", mutant.end, held | held_inside
    text = f"{{ if (rk_now<{number}>()) ; "
    for k, m in inner:
        changed = m.applied(bare, m.begin, m.end)[
            mutant.begin : mutant.end + len(m.text) - (m.end - m.begin)
        ]
        text += f"else if (rk_now<{k}>()) {changed} "
        held.add(k)
    return f"{text}else {old} }}", mutant.end, held
