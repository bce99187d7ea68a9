"""A trainable rotation: a network learns, from noisy examples alone, the basis in which signals are sparse.

python examples/layer.py [--output demo-output]
"""

from __future__ import annotations

import torch
from common import OURS, PLAIN, RIVAL, output_folder, save
from matplotlib.figure import Figure
from torch import Tensor

import swallowtail as st

N, STEPS, NOISE = 64, 1200, 0.3


def signals(Q: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """x = Q s with one coordinate of s in ten not zero; and x with noise."""
    s = torch.randn(128, N, generator=generator) * (torch.rand(128, N, generator=generator) < 0.1) * 3
    clean = s @ Q.T
    return clean, clean + NOISE * torch.randn(128, N, generator=generator)


class Shrink(torch.nn.Module):
    """Into a basis, small coordinates towards zero, and back."""

    def __init__(self, into: torch.nn.Module, back: torch.nn.Module) -> None:
        super().__init__()
        self.into, self.back = into, back
        self.threshold = torch.nn.Parameter(torch.full((N,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        z = self.into(x)
        return self.back(z.sign() * torch.relu(z.abs() - self.threshold))


def main() -> None:
    """Train in the signals' own basis, with a rotation, and with two dense layers."""
    folder = output_folder(__doc__)
    torch.manual_seed(0)
    hidden = st.Rotation(st.Butterfly(N), 0.6 * torch.randn(192, generator=torch.Generator().manual_seed(3)))
    rotate = st.nn.Rotate(N, init="identity")
    nets = {
        "no rotation": (Shrink(torch.nn.Identity(), torch.nn.Identity()), PLAIN),
        "two dense layers, 8192 numbers": (
            Shrink(*(torch.nn.Linear(N, N, bias=False) for _ in range(2))),
            RIVAL,
        ),
        "nn.Rotate and its transpose, 192 angles": (Shrink(rotate.T, rotate), OURS),
    }
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axis = figure.subplots()
    for name, (net, colour) in nets.items():
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        generator, losses = torch.Generator().manual_seed(1), []
        for _ in range(STEPS):
            clean, noisy = signals(hidden.to_dense(), generator)
            loss = (net(noisy) - clean).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item() / NOISE**2)
        print(f"{name:42s} noise left after {STEPS} steps: {100 * sum(losses[-50:]) / 50:.0f} %")
        axis.semilogy(losses, color=colour, label=name, linewidth=0.8)
    axis.set(
        xlabel="step, 128 new signals each",
        ylabel="share of the noise that is left",
        title="finding the basis",
    )
    axis.legend()
    save(figure, folder / "layer.png")


if __name__ == "__main__":
    main()
