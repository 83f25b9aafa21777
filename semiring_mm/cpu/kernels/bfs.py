"""Breadth-first search from 64 or 512 sources at once, a bit each.

Of every node a vector of bits says which searches have met it. A level goes along the edges from
the nodes that were met last or, where these are many, to all nodes not met by all searches, which
is a product of truth values that ends where nothing is missing (Then et al., The more the merrier:
efficient multi-source graph traversal, 2014; Beamer, Asanović and Patterson, Direction-optimizing
breadth-first search, 2012). How many nodes each search meets in a level is counted in bit slices.
"""

from __future__ import annotations

from ...kernel import T, across, bit, each, f64, i32, i64, kernel, lanes, static, u64, unrolled

WORDS = 8  #: of the bits of a node, in the lanes of a vector; 1 for at most 64 sources
SLICES = 8  # of the counters; after 255 nodes they are added up
LOW = 0x0F0F0F0F0F0F0F0F, 0x3333333333333333, 0x5555555555555555  # halves of parts of 8, 4, 2 bits
LOOK = 8  # edges to a node after which it is looked whether all searches have met it
PULL = 3  # an edge followed to a node that is met at once costs so much more than one from it


@kernel
def some(bits):
    """Whether any bit is set."""
    return across(bits != 0, any)


@kernel
def swap(slices, p, shift, low):
    """Swap the high halves of parts of slice p and the low halves of slice p + shift."""
    apart = ((slices[p] >> shift) ^ slices[p + shift]) & low
    slices[p] = slices[p] ^ (apart << shift)
    slices[p + shift] = slices[p + shift] ^ apart


@kernel
def add_up(slices, counts, lane):
    """Add the numbers in the slices, bit i of slice p being worth 2^p to search i, to the counts.

    Each eight bytes are transposed as matrices of bits: then byte k of slice p is the number of
    search 8 k + p.
    """
    for step in unrolled(3):
        for p in unrolled(SLICES):
            if not p & 4 >> step:
                swap(slices, p, 4 >> step, LOW[step])
    for p in unrolled(SLICES):
        for k in range(8):
            counts[8 * k + p, lane] += i64(slices[p] >> 8 * k & 255)
        slices[p] = each(u64(0))


@kernel
def count(new, slices, counts, lane, held):
    """Count the searches that meet a node; `held` nodes are in the slices."""
    carry = new
    for p in unrolled(SLICES):
        old = slices[p]
        slices[p] = old ^ carry
        carry = old & carry
    held += 1
    if held == (1 << SLICES) - 1:
        add_up(slices, counts, lane)
        held = 0
    return held


@kernel
def mark(v, words, new, label, level):
    """Write the level of a node for the searches that meet it."""
    for w in range(words):
        for j in lanes(64, whole=True):
            if bit(new[v, w], j):
                label[v, 64 * w + j] = T(level)


@kernel
def account(level, radii, radius, counts, lane, reached, total, inverse, far, within):
    """Add the counts of a level to the results; they are zeros again. The pairs in all."""
    pairs = each(0)
    for place in range(64):
        number = counts[place, lane]
        counts[place, lane] = 0
        pairs += number
        reached[place, lane] += number
        total[place, lane] += number * level
        inverse[place, lane] += f64(number) / f64(level)
        far[place, lane] = level if number > 0 else far[place, lane]
        for r in range(radii):
            if level <= radius[r]:
                within[r, place, lane] += number
    return across(pairs, sum)


@kernel
def levels(
    words: static, n: i64, arcs: i64, sources: i64, radii: i64, most: i64,
    source: i64[sources] < n, first: i64[n + 1], back_first: i64[n + 1], near: i32[arcs],
    back_near: i32[arcs], nodes: i32[2, n], bits: u64[3, n, words], full: u64[words],
    counts: i64[64, words], reached: i64[64, words], total: i64[64, words],
    inverse: f64[64, words], far: i64[64, words], radius: i64[radii],
    within: i64[radii, 64, words], table: i64[n + 1], label: T[n, 64 * words],
):  # fmt: skip
    """Search from some sources; search i has bit i % 64 of word i / 64.

    For each search: ``reached`` nodes apart from its source, the ``total`` of their distances and
    of the ``inverse`` distances, the largest, ``far``, and the number ``within`` each radius.
    ``table`` has the number of pairs for each distance, ``label`` the distances themselves, up to
    `most`. All of these hold zeros, or what stands for no path, as do ``bits`` and ``counts``;
    ``full`` has the bits of all searches.
    """
    for lane in lanes(words, words, whole=True):
        seen, here, there = bits[0], bits[1], bits[2]
        active, touched = nodes[0], nodes[1]
        wanted = full[lane]
        slices = [each(u64(0)) for _ in unrolled(SLICES)]
        size, work, level, held = 0, 0, 0, 0
        for i in range(sources):
            v = source[i]
            new = u64(1 << (i & 63)) if lane == i >> 6 else u64(0)
            old = here[v, lane]
            if some(new) and not some(old):
                active[size] = v
                size += 1
                work += first[v + 1] - first[v]
            here[v, lane] = old | new
            seen[v, lane] = old | new
        while size > 0:
            level += 1
            pull = work * PULL > arcs
            work, found = 0, 0
            if pull:
                for v in range(n):
                    missing = wanted & u64(~seen[v, lane])
                    if some(missing):
                        new = each(u64(0))
                        at, last = back_first[v], back_first[v + 1]
                        while at < last:
                            end = min(at + LOOK, last)
                            for e in range(at, end):
                                new = new | here[back_near[e], lane]
                            at = end
                            new = new & missing
                            if not some(new ^ missing):
                                break
                        if some(new):
                            there[v, lane] = new
                            touched[found] = v
                            found += 1
                for i in range(size):
                    here[active[i], lane] = 0
                active, touched = touched, active
            else:
                reach = 0
                for i in range(size):
                    v = active[i]
                    new = here[v, lane]
                    here[v, lane] = 0
                    for e in range(first[v], first[v + 1]):
                        u = near[e]
                        old = there[u, lane]
                        if not some(old):
                            touched[reach] = u
                            reach += 1
                        there[u, lane] = old | new
                for i in range(reach):
                    v = touched[i]
                    new = there[v, lane] & u64(~seen[v, lane])
                    there[v, lane] = new
                    if some(new):
                        active[found] = v
                        found += 1
            for i in range(found):
                v = active[i]
                new = there[v, lane]
                seen[v, lane] = seen[v, lane] | new
                work += first[v + 1] - first[v]
                if label is not None and level <= most:
                    mark(v, words, there, label, level)
                held = count(new, slices, counts, lane, held)
            size, held = found, 0
            add_up(slices, counts, lane)
            table[level] += account(
                level, radii, radius, counts, lane, reached, total, inverse, far, within
            )
            here, there = there, here
