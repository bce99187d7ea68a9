"""LLVM codelets that fill and empty tiles: squares of W features of W vectors, transposed in registers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from swallowtail.kernels.cpu.codegen.rows import INT, Rows, codelet


class Squares(Rows):
    """Registers of one dtype, and how squares of them are transposed."""

    def transposed(self, x: list[Any]) -> list[Any]:
        """The W×W square with rows x, transposed in lg W rounds of two-register exchanges."""
        x, h = list(x), self.w // 2
        while h:
            for i in (m for m in range(self.w) if not m & h):
                a, b = x[i], x[i + h]
                low = [self.w + (k ^ h) if k & h else k for k in range(self.w)]
                high = [self.w + k if k & h else k ^ h for k in range(self.w)]
                x[i], x[i + h] = self.shuffle(a, b, low), self.shuffle(a, b, high)
            h //= 2
        return x

    @property
    def halves(self) -> bool:
        """Whether squares are transposed by halves: that needs registers of four lanes of 128 bits."""
        return self.w * self.bits == 512

    def half(self, address: Any, which: int) -> Any:
        """Half a register's numbers, from the first or the second half of a row."""
        kind = ir.VectorType(self.vector.element, self.w // 2)
        value = self.b.load(self.b.inttoptr(self.offset(address, INT(which * kind.count)), kind.as_pointer()))
        value.align = self.bits // 8
        return value

    def transposed_halves(self, x: list[Any]) -> list[Any]:
        """The square of W rows and W/2 columns with rows x, transposed: W/2 registers.

        Two half rows are loaded into one register, so a quarter of the exchanges are done by loads. Of the others most
        stay inside lanes of 128 bits, and those cost two thirds of one that crosses lanes.
        """
        a = 128 // self.bits  # numbers in a lane
        join = list(range(self.w))
        quarters = [
            self._transposed_lanes([self.shuffle(x[s + q], x[s + a + q], join) for q in range(a)])
            for s in (0, 2 * a)
        ]
        out = []
        for odd in range(2):
            places = [lane * a + k for lane in (odd, odd + 2) for k in range(a)]
            lanes_ = places + [self.w + place for place in places]
            out += [self.shuffle(low, high, lanes_) for low, high in zip(*quarters, strict=True)]
        return out

    def _transposed_lanes(self, x: list[Any]) -> list[Any]:
        """Registers x, as many as a lane has numbers, transposed inside each lane."""
        a, h = len(x), 1
        while h < a:  # unpack low and high: places of x interleave, h numbers at a time
            low, high = (
                [
                    source * self.w + lane + place * h + k
                    for lane in range(0, self.w, a)
                    for place in range(first, first + a // h // 2)
                    for source in range(2)
                    for k in range(h)
                ]
                for first in (0, a // h // 2)
            )
            if h == 1:
                x = [self.shuffle(x[q], x[q + 1], lanes_) for q in range(0, a, 2) for lanes_ in (low, high)]
            else:
                x = [self.shuffle(x[q], x[q + 2], lanes_) for q in range(2) for lanes_ in (low, high)]
            h *= 2
        return x

    def clamped(self, base: Any, v: int, stride: Any, last: Any) -> Any:
        """Address of row v of a batch, or of its last row: lanes past the end repeat it."""
        inside = self.b.icmp_signed("<", INT(v), last)
        row = self.b.select(inside, INT(v), last)
        return self.offset(base, self.b.mul(row, stride))


def _square(into_tile: bool, scaled: bool) -> Any:
    @intrinsic
    def square(typingctx, like, batch, stride, last, tile, row_length, factors):
        def emit(
            r: Squares, batch: Any, stride: Any, last: Any, tile: Any, row_length: Any, factors: Any
        ) -> None:  # fmt: skip
            vectors = [r.clamped(batch, v, stride, last) for v in range(r.w)]
            features = [r.offset(tile, r.b.mul(INT(m), row_length)) for m in range(r.w)]
            splats = [r.splat(r.number(r.offset(factors, INT(m)))) for m in range(r.w)] if scaled else []
            if r.halves:
                sources, targets = (vectors, features) if into_tile else (features, vectors)
                for half in range(2):
                    x = [r.half(address, half) for address in sources]
                    if scaled and not into_tile:
                        low = [r.shuffle(splat, r.undefined, list(range(r.w // 2))) for splat in splats]
                        x = [r.multiply(a, b) for a, b in zip(low, x, strict=True)]
                    own = slice(half * r.w // 2, (half + 1) * r.w // 2)
                    x = r.transposed_halves(x)
                    if scaled and into_tile:
                        x = [r.multiply(a, b) for a, b in zip(splats[own], x, strict=True)]
                    for row, address in zip(x, targets[own], strict=True):
                        r.store(row, address)
                return
            x = [r.load(address) for address in (vectors if into_tile else features)]
            if into_tile:
                x = r.transposed(x)
            if scaled:
                x = [r.multiply(splat, row) for splat, row in zip(splats, x, strict=True)]
            if not into_tile:
                x = r.transposed(x)
            for row, address in zip(x, features if into_tile else vectors, strict=True):
                r.store(row, address)

        return types.void(like, *[types.int64] * 6), codelet(emit, Squares)

    return square


# Transpose W features of W vectors into W rows of a tile, or back; ``last`` is the number of the last vector. The
# scaled ones multiply each feature by its factor.
square_in, square_out = _square(True, False), _square(False, False)
scaled_square_in, scaled_square_out = _square(True, True), _square(False, True)


@intrinsic
def scale_square(typingctx, like, source, target, stride, last, factors):
    """W features of W vectors times their factors, from one batch to another; ``last`` is that of the last vector."""

    def emit(r: Squares, source: Any, target: Any, stride: Any, last: Any, factors: Any) -> None:
        own = r.load(factors)
        for v in range(r.w):
            x = r.load(r.clamped(source, v, stride, last))
            r.store(r.multiply(own, x), r.clamped(target, v, stride, last))

    return types.void(like, *[types.int64] * 5), codelet(emit, Squares)
