"""Denoise a photograph with a mixture of Givens Gaussians over its patches.

python examples/denoise.py [--output demo-output]
"""

from __future__ import annotations

import numpy as np
from common import output_folder, save
from matplotlib.figure import Figure
from sklearn.datasets import load_sample_images
from sklearn.feature_extraction.image import extract_patches_2d, reconstruct_from_patches_2d

import swallowtail as st

SIDE, NOISE = 8, 20.0


def wiener(mixture: st.GivensMixture, Y: np.ndarray, variance: float) -> np.ndarray:
    """E[x | y = x + noise] for the likeliest component: μ + Σ (Σ + σ²)⁻¹ (y − μ), diagonal in each one's basis."""
    result, labels = np.empty_like(Y), mixture.predict(Y)
    for k, (mean, cov) in enumerate(zip(mixture.means_, mixture.covariances_, strict=True)):
        rows = labels == k
        # The mixture saw noisy patches: Σ + σ².
        kept = cov.function(lambda d: (d - variance).clamp(min=0) / d)
        result[rows] = mean + kept(Y[rows] - mean)
    return result


def decibels(clean: np.ndarray, other: np.ndarray) -> float:
    """Peak signal-to-noise ratio."""
    return float(20 * np.log10(255 / np.sqrt(np.mean((clean - other) ** 2))))


def main() -> None:
    """Fit to the noisy patches themselves; average the restored ones."""
    folder = output_folder(__doc__)
    clean = load_sample_images().images[0].mean(-1)[60:260, 200:440]
    noisy = clean + NOISE * np.random.default_rng(0).standard_normal(clean.shape)
    patches = extract_patches_2d(noisy, (SIDE, SIDE)).reshape(-1, SIDE * SIDE)
    few = patches[np.random.default_rng(1).choice(len(patches), 12000, replace=False)]
    mixture = st.GivensMixture(8, random_state=0).fit(few)
    restored = wiener(mixture, patches, NOISE**2)
    image = reconstruct_from_patches_2d(restored.reshape(-1, SIDE, SIDE), clean.shape)
    print(f"noisy {decibels(clean, noisy):.2f} dB, restored {decibels(clean, image):.2f} dB")
    figure = Figure(figsize=(9, 2.9), layout="constrained")
    titles = {
        "clean": clean,
        f"noisy, {decibels(clean, noisy):.1f} dB": noisy,
        f"restored, {decibels(clean, image):.1f} dB": image,
    }
    for axis, (title, picture) in zip(figure.subplots(1, 3), titles.items(), strict=True):
        axis.imshow(picture, cmap="gray", vmin=0, vmax=255)
        axis.set(xticks=[], yticks=[], title=title)
    save(figure, folder / "denoise.png")


if __name__ == "__main__":
    main()
