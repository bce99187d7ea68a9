"""One task in a process of its own, started by `apart`; the answer is a line of JSON.

python -m benchmarks.fitting.task '{"task": "products", "side": 64, …}'
"""

from __future__ import annotations

import json
import resource
import sys

import numpy as np
import torch

from benchmarks.common.rows import Row
from benchmarks.fitting.compare import warm_up
from benchmarks.fitting.eigtj import eigtj
from benchmarks.fitting.products import GridProduct, peak_mib, products_rows
from benchmarks.fitting.quality import quality


def main(task: Row) -> Row:
    """One task of `apart`."""
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_CPU, (task["limit"], task["limit"] + 5))
    if task["task"] == "eigtj":
        H = np.load(task["path"])
        apply, wall, cpu = eigtj(H, task["K"], task["kind"])
        return {"seconds": wall, "cpu_seconds": cpu} | quality(H, apply, len(H), task["seed"])
    warm_up()
    product = GridProduct(task["side"], task["length"], task["seed"])
    n = product.shape[0]
    before = peak_mib()
    rows = products_rows(product, product, n, n * (n - 1).bit_length() // 2, task["products"], task["seed"])
    rows[0]["note"] = f"{before:.0f} MiB before the fit: interpreter, libraries, compiled code"
    return {"rows": rows}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
