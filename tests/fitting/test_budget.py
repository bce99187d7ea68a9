"""How many rotations a fit uses."""

import subprocess
import sys
import textwrap

import swallowtail as st
from swallowtail.fitting import fit_symmetric
from swallowtail.fitting.budget import default_budget, largest_budget

N = 12


H = st.random_symmetric(N, 3, 0)


def test_budget_is_kept():
    for K in (0, 1, 17, 40):
        assert fit_symmetric(H, n_rotations=K).operator.rotation.n_rotations <= K
    assert fit_symmetric(H).operator.rotation.n_rotations <= default_budget(N) == 24
    assert default_budget(64, 2) == 384


def test_a_huge_budget_ends():
    result = fit_symmetric(H, n_rotations=10**6)
    assert result.status == "exact"
    assert result.operator.rotation.n_rotations < 2000


def test_a_huge_budget_takes_little_memory():
    code = """
        import resource
        from swallowtail import fit_rotation, fit_symmetric, random_orthogonal, random_symmetric
        H, R = random_symmetric(12, 3, 0), random_orthogonal(12, 0)
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024  # MiB
        fit_symmetric(H), fit_rotation(R), fit_symmetric(lambda X: H @ X, 12, max_products=6)
        before = peak()
        results = [
            fit_symmetric(H, n_rotations=10**8),
            fit_symmetric(H, n_rotations=10**8, method="pairs", cycles=2),
            fit_symmetric(H, n_rotations=10**8, method="hybrid"),
            fit_symmetric(lambda X: H @ X, 12, max_products=6, n_rotations=10**8),
            fit_rotation(R, n_rotations=10**8),
        ]
        print(peak() - before, *(getattr(r.operator, "rotation", r.operator).n_rotations for r in results))
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    grown, *counts = map(int, found.stdout.split())
    assert grown < 100
    assert max(counts) <= largest_budget(12)
