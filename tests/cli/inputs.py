"""Files for the command line: good ones in every format, and bad ones."""

import numpy as np
import scipy.sparse as sp
from safetensors.numpy import save_file
from scipy.io import mmwrite

import swallowtail as st

H = st.random_symmetric(16, 3, 0)


def write(path, A):
    """A in the format of the path's ending."""
    kind = path.name.split(".", 1)[1]
    if kind == "npy":
        np.save(path, A)
    elif kind == "npz":
        sp.save_npz(path, sp.csr_array(A))
    elif kind == "array.npz":
        np.savez(path, A)
    elif kind == "csv":
        np.savetxt(path, A, delimiter=",", fmt="%.17g")
    elif kind == "mtx":
        mmwrite(path, A)
    elif kind == "sparse.mtx":
        mmwrite(path, sp.coo_array(A))
    else:
        save_file({"H": np.ascontiguousarray(A)}, path)
    return str(path)


FORMATS = ("npy", "npz", "array.npz", "csv", "mtx", "sparse.mtx", "safetensors")


def huge(path):
    """A sparse matrix of two entries that would take 80 TB as an array."""
    sp.save_npz(path, sp.coo_array(([1.0, 2.0], ([0, 1], [0, 9])), shape=(10**6, 10**7)))
    return str(path)


def broken(path, content=b"no such thing"):
    path.write_bytes(content)
    return str(path)


def pickled(path):
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    return str(path)


def two_arrays(path):
    np.savez(path, A=H, B=H)
    return str(path)


def two_tensors(path):
    save_file({"A": H, "B": H}, path)
    return str(path)


def saved(folder):
    st.save(st.SymmetricOperator(st.Rotation.random(16, seed=0), np.ones(16)), folder / "h.safetensors")
    return str(folder / "h.safetensors")


def rotation(folder):
    st.save(st.Rotation.random(16, seed=0), folder / "q.safetensors")
    return str(folder / "q.safetensors")
