"""The files a user gives: every format and layout, and damaged ones that are refused before they do harm."""

import io
import os
import struct
import threading
import time
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from cli.inputs import FORMATS, broken, write
from scipy.io import mmwrite

from swallowtail import ArgumentError
from swallowtail.cli import main, readers
from swallowtail.cli.files import read_array

A = np.random.default_rng(0).standard_normal((6, 4)) * (np.random.default_rng(1).random((6, 4)) < 0.7)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "dia", "bsr"])
@pytest.mark.parametrize("compressed", [True, False])
def test_every_sparse_format(kind, compressed, tmp_path):
    made = sp.bsr_array(A, blocksize=(2, 2)) if kind == "bsr" else getattr(sp, f"{kind}_array")(A)
    for matrix in (made, getattr(sp, f"{kind}_matrix")(made)):
        sp.save_npz(tmp_path / "a.npz", matrix, compressed=compressed)
        np.testing.assert_array_equal(read_array(tmp_path / "a.npz").toarray(), A)


@pytest.mark.parametrize("dtype", ["<f8", ">f4", "<i2", "|b1", "<f2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_layout(dtype, order, tmp_path):
    array = np.asarray(A, dtype, order=order)
    np.save(tmp_path / "a.npy", array)
    np.savez_compressed(tmp_path / "a.npz", array)
    for name in ("a.npy", "a.npz"):
        found = read_array(tmp_path / name)
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric", "AUTO"])
@pytest.mark.parametrize("field", ["real", "integer", None])
@pytest.mark.parametrize("layout", [np.asarray, sp.coo_array, sp.csr_array])
def test_every_matrix_market_file(symmetry, field, layout, tmp_path):
    B = np.round(10 * A[:4] * (np.arange(4) != 2))
    B = {"symmetric": B + B.T, "skew-symmetric": B - B.T}.get(symmetry, B)
    mmwrite(tmp_path / "b.mtx", layout(B), comment="two\nlines", field=field, symmetry=symmetry)
    found = read_array(tmp_path / "b.mtx")
    np.testing.assert_array_equal(found if layout is np.asarray else found.toarray(), B)


def test_patterns_and_empty_matrices(tmp_path):
    for matrix in (sp.coo_array(A != 0), sp.coo_array((3, 4))):
        mmwrite(tmp_path / "b.mtx", matrix.astype(float), field="pattern")
        np.testing.assert_array_equal(read_array(tmp_path / "b.mtx").toarray(), matrix.toarray())


def npy(shape, data=b"", descr="<f8", order=False, version=(1, 0), raw=None):
    """Bytes in NumPy's format with a header that may be wrong."""
    header = repr({"descr": descr, "fortran_order": order, "shape": shape}) if raw is None else raw
    header = header.encode() + b"\n"
    size = struct.pack("<H" if version == (1, 0) else "<I", len(header))
    return b"\x93NUMPY" + bytes(version) + size + header + data


def npz(path, **arrays):
    """An archive; arrays may be given as bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in arrays.items():
            if not isinstance(value, bytes):
                file = io.BytesIO()
                np.save(file, value)
                value = file.getvalue()
            archive.writestr(f"{name}.npy", value)
    return str(path)


def csr(path, kind="csr", **change):
    parts = {"format": np.array(kind.encode()), "shape": np.array([3, 3]), "data": np.ones(3)}
    parts |= {"indices": np.array([0, 1, 2], np.int32), "indptr": np.array([0, 1, 2, 3], np.int32)}
    return npz(path, **{name: value for name, value in {**parts, **change}.items() if value is not None})


def coo(path, **change):
    index = np.array([0, 1, 2])
    return csr(path, "coo", **{"indices": None, "indptr": None, "row": index, "col": index, **change})


def mtx(path, kind, *lines):
    return broken(path, "\n".join([f"%%MatrixMarket matrix {kind}", *lines, ""]).encode())


DAMAGE = {
    "10^12 numbers announced": lambda p: broken(p / "a.npy", npy((10**6, 10**6))),
    "10^40 numbers announced": lambda p: broken(p / "a.npy", npy((10**20, 10**20))),
    "negative shape": lambda p: broken(p / "a.npy", npy((-1, 2), bytes(16))),
    "a shape of words": lambda p: broken(p / "a.npy", npy(("a", 2), bytes(16))),
    "a shape of floats": lambda p: broken(p / "a.npy", npy((1.0, 2), bytes(16))),
    "a number short": lambda p: broken(p / "a.npy", npy((2, 2), bytes(24))),
    "a byte too many": lambda p: broken(p / "a.npy", npy((2, 2), bytes(33))),
    "a deep header": lambda p: broken(p / "a.npy", npy((), raw="(" * 9000 + ")" * 900)),
    "a header of 4 GB": lambda p: broken(p / "a.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}"),
    "a long header": lambda p: broken(p / "a.npy", npy((), raw=" " * 10**6, version=(2, 0))),
    "an unknown version": lambda p: broken(p / "a.npy", npy((2, 2), bytes(32), version=(9, 9))),
    "records": lambda p: broken(p / "a.npy", npy((2,), bytes(32), descr=[("a", "<f8"), ("b", "<f8")])),
    "words": lambda p: broken(p / "a.npy", npy((2,), bytes(32), descr="<U4")),
    "objects": lambda p: broken(p / "a.npy", npy((2,), bytes(16), descr="|O")),
    "10^12 numbers in an archive": lambda p: npz(p / "a.npz", a=npy((10**6, 10**6))),
    "objects in an archive": lambda p: npz(p / "a.npz", a=npy((2,), bytes(16), descr="|O")),
    "an empty archive": lambda p: npz(p / "a.npz"),
    "sparse, no data": lambda p: csr(p / "a.npz", data=None),
    "sparse, unknown format": lambda p: csr(p / "a.npz", kind="magic"),
    "sparse, format is a number": lambda p: csr(p / "a.npz", format=np.array(3)),
    "sparse, three axes": lambda p: csr(p / "a.npz", shape=np.array([3, 3, 3])),
    "sparse, negative shape": lambda p: csr(p / "a.npz", shape=np.array([3, -3])),
    "sparse, 10^15 columns": lambda p: csr(p / "a.npz", shape=np.array([3, 10**15])),
    "sparse, rows too many": lambda p: csr(p / "a.npz", shape=np.array([10**6, 3])),
    "sparse, index too large": lambda p: csr(p / "a.npz", indices=np.array([0, 1, 10**9], np.int32)),
    "sparse, index negative": lambda p: csr(p / "a.npz", indices=np.array([0, 1, -5], np.int32)),
    "sparse, indices are floats": lambda p: csr(p / "a.npz", indices=np.array([0.0, 1.0, 2.0])),
    "sparse, too few indices": lambda p: csr(p / "a.npz", indices=np.array([0, 1], np.int32)),
    "sparse, indptr beyond": lambda p: csr(p / "a.npz", indptr=np.array([0, 1, 2, 10**9], np.int32)),
    "sparse, indptr falls": lambda p: csr(p / "a.npz", indptr=np.array([0, 3, 1, 3], np.int32)),
    "sparse, indptr negative": lambda p: csr(p / "a.npz", indptr=np.array([0, -9, 2, 3], np.int32)),
    "sparse, indptr begins late": lambda p: csr(p / "a.npz", indptr=np.array([1, 1, 2, 3], np.int32)),
    "sparse, indptr empty": lambda p: csr(p / "a.npz", indptr=np.zeros(0, np.int32)),
    "csc, index too large": lambda p: csr(p / "a.npz", kind="csc", indices=np.array([0, 1, 7], np.int32)),
    "bsr, flat data": lambda p: csr(p / "a.npz", kind="bsr"),
    "bsr, blocks of 0": lambda p: csr(p / "a.npz", kind="bsr", data=np.ones((3, 0, 1))),
    "bsr, blocks that do not fit": lambda p: csr(p / "a.npz", kind="bsr", data=np.ones((3, 2, 2))),
    "coo, row too large": lambda p: coo(p / "a.npz", row=np.array([0, 1, 9])),
    "coo, column negative": lambda p: coo(p / "a.npz", col=np.array([0, 1, -1])),
    "coo, too few rows": lambda p: coo(p / "a.npz", row=np.array([0, 1])),
    "dia, no offsets": lambda p: csr(p / "a.npz", kind="dia", data=np.ones((1, 3))),
    "dia, flat data": lambda p: csr(p / "a.npz", kind="dia", offsets=np.array([0])),
    "mtx, 10^18 entries": lambda p: mtx(p / "a.mtx", "coordinate real general", f"3 3 {10**18}", "1 1 1"),
    "mtx, 10^12 numbers": lambda p: mtx(p / "a.mtx", "array real general", f"{10**6} {10**6}", "1"),
    "mtx, 10^15 rows": lambda p: mtx(p / "a.mtx", "coordinate real general", f"{10**15} 3 1", "1 1 1"),
    "mtx, index too large": lambda p: mtx(p / "a.mtx", "coordinate real general", "3 3 1", "9 1 1"),
    "mtx, index 0": lambda p: mtx(p / "a.mtx", "coordinate real general", "3 3 1", "0 1 1"),
    "mtx, negative size": lambda p: mtx(p / "a.mtx", "coordinate real general", "-3 3 1", "1 1 1"),
    "mtx, no size": lambda p: mtx(p / "a.mtx", "array real general"),
    "mtx, a vector": lambda p: broken(p / "a.mtx", b"%%MatrixMarket vector array real general\n3\n1\n2\n3\n"),
    "mtx, symmetric but not square": lambda p: mtx(p / "a.mtx", "array real symmetric", "3 2", *"123456"),
    "mtx, a line too many": lambda p: mtx(p / "a.mtx", "array real general", "2 2", *"12345"),
    "mtx, a number too many": lambda p: mtx(p / "a.mtx", "coordinate real general", "3 3 1", "1 1 1 1"),
    "mtx, half an index": lambda p: mtx(p / "a.mtx", "coordinate real general", "3 3 1", "1.5 1 1"),
    "mtx, complex": lambda p: mtx(p / "a.mtx", "coordinate complex general", "3 3 1", "1 1 1 1"),
    "mtx, unknown": lambda p: mtx(p / "a.mtx", "diagonal real general", "3 3 1", "1 1 1"),
    "csv, other bytes": lambda p: broken(p / "a.csv", bytes(range(256))),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damage(name, tmp_path, capsys):
    path, start = DAMAGE[name](tmp_path), time.perf_counter()
    assert main(["fit", path, "--quiet"]) == 1
    out, err = capsys.readouterr()
    assert err.startswith(f"swallowtail: {path}: expected ")
    assert err.count("\n") == 1
    assert out == ""
    assert time.perf_counter() - start < 10


def test_sound_files_of_the_same_make(tmp_path):
    for make in (csr, coo):
        np.testing.assert_array_equal(read_array(make_path(make, tmp_path)).toarray(), np.eye(3))
    (tmp_path / "b.npy").write_bytes(npy((2, 2), bytes(32)))
    np.testing.assert_array_equal(read_array(tmp_path / "b.npy"), np.zeros((2, 2)))


def make_path(make, folder):
    make(folder / "a.npz")
    return folder / "a.npz"


def damaged(whole, rng):
    """Flipped bits (half of the time near the beginning, where headers are), a cut, or bytes put in or out."""
    data, where, kind = bytearray(whole), int(rng.integers(len(whole))), rng.integers(5)
    if kind == 0:
        return bytes(data[:where])
    if kind == 1:
        return bytes(data[:where] + rng.bytes(int(rng.integers(1, 9))) + data[where:])
    if kind == 2:
        return bytes(data[:where] + data[where + int(rng.integers(1, 9)) :])
    end = len(data) if kind == 3 else min(len(data), 200)
    for _ in range(int(rng.integers(1, 4))):
        data[int(rng.integers(end))] ^= 1 << int(rng.integers(8))
    return bytes(data)


@pytest.mark.filterwarnings("ignore")  # NumPy warns of odd headers before it refuses them
@pytest.mark.parametrize("kind", [*FORMATS, "inner.npz"])
def test_fuzz(kind, tmp_path):
    """A damaged file is refused by name, or what it holds is a matrix that can be used."""
    rng, path = np.random.default_rng(0), tmp_path / f"damaged.{kind.split('.')[-1]}"
    if kind == "inner.npz":  # the parts of a sparse matrix, damaged inside a sound archive
        sp.save_npz(tmp_path / "whole.npz", sp.csr_array(A))
        with zipfile.ZipFile(tmp_path / "whole.npz") as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
    else:
        with open(write(tmp_path / f"whole.{kind}", A), "rb") as file:
            whole = file.read()
    refused = used = 0
    for _ in range(100):
        if kind == "inner.npz":
            name = str(rng.choice(list(parts)))
            npz(
                path,
                **{n.removesuffix(".npy"): damaged(p, rng) if n == name else p for n, p in parts.items()},
            )
        else:
            path.write_bytes(damaged(whole, rng))
        try:
            found = read_array(path)
        except ArgumentError as error:
            refused += str(error).startswith(f"{path}: expected ")
        else:
            used += (found @ np.ones(found.shape[-1])).ndim <= 1 if found.ndim else 1
    assert refused + used == 100
    assert refused > 10


@pytest.mark.parametrize(
    "lines",
    [
        "1,2\n3,4\n",
        "a,b\n1,2\n3,4\n",
        ",a,b\nx,1,2\ny,3,4\n",
        "name;a;b\nx;1;2\ny;3;4\n",
        "a\tb\n1\t2\n3\t4\n",
        "# made by hand\n1 2\n3 4\n",
        "\ufeff1,2\n\n3,4\n",
        ",a,b\n0,1,2\n1,3,4\n",  # pandas: DataFrame.to_csv
        ",0,1\n0,1,2\n1,3,4\n",
        '"","a","b"\n"1",1,2\n"2",3,4\n',  # R: write.csv
        "a b\n1 1 2\n2 3 4\n",  # R: write.table
    ],
)
def test_text_with_and_without_headers_and_names(lines, tmp_path):
    path = tmp_path / "H.txt"
    path.write_text(lines, encoding="utf-8")
    assert readers.text(path).tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("lines", [",2\n3,4\n", ",2,5\n3,4,6\n", "1,2\n3,4,5\n", "1 2\n1 2 3\n"])
def test_a_missing_number_is_no_header(lines, tmp_path):
    path = tmp_path / "H.csv"
    path.write_text(lines)
    with pytest.raises(ArgumentError, match="got ") as caught:
        read_array(path)
    assert "usecols" not in str(caught.value)  # NumPy's advice to its own callers


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("a,b\n# a remark\n1,2\n\n3,NA\n", "'NA' in line 5; try leaving out rows where numbers are missing"),
        ("1,2\n3,\n", "'' in line 2; try leaving out rows where numbers are missing"),
        ("name,a,b\nx,1,2\ny,3,four\n", "'four' in line 3"),
        ("1;2\n3,5;4\n", "'3,5' in line 2; try decimal points"),
        ("1;0,5\n0,5;1\n", "'0,5' in line 1; try decimal points"),
        ("a,b\n1,2\n3,4,5\n", "2 columns at first and 3 in line 3"),
    ],
)
def test_the_line_of_a_mistake_is_named(lines, message, tmp_path):
    path = tmp_path / "H.csv"
    path.write_text(lines)
    with pytest.raises(ArgumentError) as caught:
        read_array(path)
    assert str(caught.value).endswith(f"got {message}")


def test_a_format_that_is_not_read_has_a_way_out(tmp_path):
    (tmp_path / "H.parquet").touch()
    with pytest.raises(ArgumentError, match=r"got \.parquet; try numpy\.save, or writing it as \.csv"):
        read_array(tmp_path / "H.parquet")


def test_a_named_pipe_is_read_as_standard_input_is(tmp_path):
    """As the shell's ``<(command)``."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    buffer = io.BytesIO()
    np.save(buffer, np.eye(3))
    writer = threading.Thread(target=path.write_bytes, args=(buffer.getvalue(),))
    writer.start()
    np.testing.assert_array_equal(read_array(path), np.eye(3))
    writer.join(10)
