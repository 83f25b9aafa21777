"""The nearest of many line segments to each of many points, by a grid of cells."""

from __future__ import annotations

from ..kernel import f64, i32, i64, kernel

FAR = float("inf")
NONE = -1  #: the segment of a point that has none near enough


@kernel
def cell_of(x, cells):
    """The cell of a coordinate in units of cells, of the grid's border where it lies outside."""
    return i64(min(max(x, 0.0), f64(cells - 1)))


@kernel
def sort_segments(
    m: i64, wide: i64, high: i64, x: f64[m, 2], y: f64[m, 2], count: i64[wide * high + 1],
    held: i32[:], full: i64,
):  # fmt: skip
    """Which segments pass through each cell of a grid, whose sides are 1.

    First ``count`` receives how many these are, in the entry after the cell's; then, if `full`, it
    has where they end in ``held`` for the cell before, and is moved on.
    """
    for s in range(m):
        x0, y0, x1, y1 = x[s, 0], y[s, 0], x[s, 1], y[s, 1]
        low, top = cell_of(min(y0, y1), high), cell_of(max(y0, y1), high)
        slope = (x1 - x0) / (y1 - y0) if y0 != y1 else f64(0)
        for r in range(low, top + 1):
            a, b = x0, x1
            if low < top:  # the part between the borders of the row
                a = x0 + (max(min(y0, y1), f64(r)) - y0) * slope
                b = x0 + (min(max(y0, y1), f64(r + 1)) - y0) * slope
            left, right = cell_of(min(a, b) - 1e-6, wide), cell_of(max(a, b) + 1e-6, wide)
            for c in range(left, right + 1):
                at = r * wide + c
                if full != 0:
                    held[count[at]] = i32(s)
                    count[at] += 1
                else:
                    count[at + 1] += 1


@kernel
def nearest_segments(
    begin: i64, end: i64, wide: i64, high: i64, first: i64[wide * high + 1], held: i32[first[-1]],
    x: f64[:, 2], y: f64[:, 2], px: f64[end], py: f64[end], most: f64, found: i64[end],
    part: f64[end], square: f64[end],
):  # fmt: skip
    """The nearest segment of points `begin` to `end` within a squared distance of `most`.

    Of equally near ones the first. ``part`` is where on it, from 0 to 1, and ``square`` the squared
    distance. Rings of cells around that of the point are looked at, until all others are farther.
    """
    for i in range(begin, end):
        u, v = px[i], py[i]
        cx, cy = cell_of(u, wide), cell_of(v, high)
        best, which, where, ring = most, i64(NONE), f64(0), 0
        while True:
            left, right, low, top = cx - ring, cx + ring, cy - ring, cy + ring
            for r in range(max(low, 0), min(top, high - 1) + 1):
                inner = (r > low) & (r < top)
                step = max(right - left, 1) if inner else 1
                c = left
                while c <= right:
                    at = r * wide + min(max(c, 0), wide - 1)
                    stop = first[at + 1] if c >= 0 and c < wide else first[at]
                    for e in range(first[at], stop):
                        s = i64(held[e])
                        x0, y0 = x[s, 0], y[s, 0]
                        dx, dy = x[s, 1] - x0, y[s, 1] - y0
                        norm = dx * dx + dy * dy
                        t = ((u - x0) * dx + (v - y0) * dy) / norm if norm > 0.0 else f64(0)
                        t = min(max(t, 0.0), 1.0)
                        gx, gy = x0 + t * dx - u, y0 + t * dy - v
                        d = gx * gx + gy * gy
                        if d < best or (d == best and (which < 0 or s < which)):
                            best, which, where = d, s, t
                    c += step
            # how far what lies beyond the ring is at least
            near = f64(FAR)
            near = min(near, u - f64(left)) if left > 0 else near
            near = min(near, f64(right + 1) - u) if right < wide - 1 else near
            near = min(near, v - f64(low)) if low > 0 else near
            near = min(near, f64(top + 1) - v) if top < high - 1 else near
            if near == FAR or (near > 0.0 and near * near > best):
                break
            ring += 1
        found[i], part[i], square[i] = which, where, best
