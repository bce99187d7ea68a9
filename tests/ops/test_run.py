"""One rotation on a device goes by the back end's shortcut; everything else by its functions."""

from __future__ import annotations

import pytest
import torch
from cases import normal, random_angles

from swallowtail import Butterfly, kernels
from swallowtail.ops import run

WIRING = Butterfly(6)


class Shortcuts:
    """Stands for a back end with shortcuts, and notes who is asked."""

    def __init__(self, takes):
        self.takes, self.asked = takes, []

    def __getattr__(self, name):
        def function(*arguments, **_):
            self.asked.append(name)
            return "result" if self.takes or not name.startswith("live") else None

        return function


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("takes", [True, False])
def test_who_is_asked(monkeypatch, batch, takes):
    x, angles = torch.empty(batch, 3, 6, device="meta"), torch.empty(batch, 7, device="meta")
    d = torch.empty(batch, 6, device="meta")
    for function, arguments in (
        (run.rotate, (x, angles, WIRING, True)),
        (run.rotate_backward, (x, x, angles, WIRING, False)),
        (run.symmetric, (x, angles, d, WIRING)),
        (run.quadratic, (x, angles, d, WIRING)),
    ):
        backend = Shortcuts(takes)
        monkeypatch.setattr(kernels, "backend_for", lambda x, backend=backend: backend)
        assert function(*arguments) == "result"
        shortcut = "live_backward" if function is run.rotate_backward else "live"
        expected = (
            [function.__name__] if batch == 2 else [shortcut] if takes else [shortcut, function.__name__]
        )
        assert backend.asked == expected


def test_a_cpu_has_no_shortcut():
    x, angles = normal(1, 3, 6), random_angles(WIRING, 1)
    expected = kernels.load("reference").rotate(WIRING, angles, x)
    torch.testing.assert_close(run.rotate(x, angles, WIRING, False), expected)
