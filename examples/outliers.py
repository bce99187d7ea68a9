"""A mixture of Givens Gaussians finds the odd ones out: digits with noise among them.

python examples/outliers.py [--output demo-output]
"""

from __future__ import annotations

import numpy as np
from common import OURS, RIVAL, output_folder, save
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from sklearn.mixture import GaussianMixture

import swallowtail as st


def main() -> None:
    """Fit to clean digits; score clean and spoiled ones."""
    folder = output_folder(__doc__)
    X = load_digits().data
    rng = np.random.default_rng(0)
    rng.shuffle(X)
    train, clean = X[:1200], X[1200:]
    spoiled = clean.copy()
    for row in spoiled:  # eight pixels of each change places
        places = rng.choice(64, 8, replace=False)
        row[places] = row[rng.permutation(places)]
    models = {
        "Givens mixture": st.GivensMixture(10, random_state=0).fit(train),
        "diagonal": GaussianMixture(10, covariance_type="diag", reg_covar=0.1, random_state=0).fit(train),
    }
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(2, 1))
    for (name, model), colour in zip(models.items(), (OURS, RIVAL), strict=True):
        scores = [model.score_samples(part) for part in (clean, spoiled)]
        area = roc_auc_score(np.repeat([0, 1], len(clean)), -np.concatenate(scores))
        means = "mean log-density {:8.1f} clean, {:9.1f} spoiled".format(*(part.mean() for part in scores))
        print(f"{name:15s} {means}; AUC {area:.3f}")
        ranks = np.sort(scores[0])
        share = [np.mean(scores[1] < ranks[int(q * len(ranks))]) for q in np.linspace(0, 0.3, 40)]
        left.plot(
            np.linspace(0, 30, 40), 100 * np.array(share), color=colour, label=f"{name}, AUC {area:.3f}"
        )
    left.set(
        xlabel="clean digits flagged, %", ylabel="spoiled digits found, %", title="eight of 64 pixels swapped"
    )
    left.legend()
    worst = np.argsort(models["Givens mixture"].score_samples(clean))[:4]
    right.imshow(clean[worst].reshape(2, 2, 8, 8).swapaxes(1, 2).reshape(16, 16), cmap="gray_r")
    right.set(xticks=[], yticks=[], title="the oddest clean digits")
    save(figure, folder / "outliers.png")


if __name__ == "__main__":
    main()
