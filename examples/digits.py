"""The main job on real data: fit the covariance of scikit-learn's digits, compare with the plain rivals, draw it.

python examples/digits.py [--output demo-output]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from common import microseconds
from matplotlib.figure import Figure

import swallowtail as st
from swallowtail.datasets import digits_covariance


def draw(H: np.ndarray, fits: dict[str, np.ndarray], path: Path) -> None:
    """The true matrix and its approximations side by side, in one colour scale."""
    limit = float(np.abs(H).max())
    figure = Figure(figsize=(3.4 * (1 + len(fits)), 3.6), layout="constrained")
    for axis, (title, matrix) in zip(
        figure.subplots(1, 1 + len(fits)), {"true": H, **fits}.items(), strict=True
    ):
        image = axis.imshow(matrix, cmap="RdBu_r", vmin=-limit, vmax=limit)
        axis.set(title=title, xlabel="pixel", ylabel="pixel")
    figure.colorbar(image, ax=figure.axes, label="covariance", shrink=0.8)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Fit, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)

    H = digits_covariance()
    n = len(H)
    print(
        f"covariance of scikit-learn's digits, n = {n}; H ≈ Q D Qᵀ with n·lg n/2 = {n * 6 // 2} rotations\n"
    )
    pairs = st.fit_symmetric(H, wiring="pairs")
    butterfly = st.fit_symmetric(H, wiring="butterfly")

    print("\nrotations on pairs chosen from the data:")
    print(pairs)
    print("\nthe paper's butterfly:")
    print(butterfly)

    x = torch.randn(256, n, dtype=torch.float64)
    dense = torch.from_numpy(H)
    print("\ntime of 256 products, this machine:")
    print(f"  pairs     {microseconds(lambda: pairs.operator(x)):8.0f} µs")
    print(f"  butterfly {microseconds(lambda: butterfly.operator(x)):8.0f} µs")
    print(
        f"  dense     {microseconds(lambda: x @ dense):8.0f} µs   (at n = 64 dense is hard to beat; see the README)"
    )

    Q = st.Rotation.random(4096, seed=0)
    big, matrix = torch.randn(256, 4096), torch.randn(4096, 4096)
    ours, theirs = microseconds(lambda: Q(big)), microseconds(lambda: big @ matrix)
    print(f"  n = 4096: a butterfly {ours:.0f} µs, dense {theirs:.0f} µs: {theirs / ours:.0f} times faster")

    draw(
        H,
        {
            f"pairs, {pairs.angle:.1f}°": pairs.operator.to_dense().numpy(),
            f"butterfly, {butterfly.angle:.1f}°": butterfly.operator.to_dense().numpy(),
        },
        output / "digits.png",
    )
    pairs.plot(output / "fit.png")
    st.save(pairs.operator, output / "digits.safetensors")
    print(
        f"\npictures: {output / 'digits.png'}, {output / 'fit.png'}; operator: {output / 'digits.safetensors'}"
    )


if __name__ == "__main__":
    main()
