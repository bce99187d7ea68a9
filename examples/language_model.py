"""A byte-level transformer, trained on the spot on Python's own library sources: nothing to download.

`quantise.py` and `finetune.py` use it.
"""

from __future__ import annotations

import math
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

OTHER_TEXT = "pydoc_data"  # English, about Python: what fine-tuning moves to
LEFT_OUT = {"site-packages", "test", "tests", "idlelib", "lib2to3", OTHER_TEXT}


@dataclass(frozen=True)
class Size:
    """Of the model and of a training batch."""

    width: int = 128
    inner: int = 384
    layers: int = 2
    heads: int = 4
    context: int = 128
    batch: int = 16


SMALL = Size()
FULL = Size(width=768, inner=2000, layers=6, heads=12, context=256, batch=64)  # no power of two


class Text:
    """Bytes to train on, and bytes kept for validation."""

    def __init__(self, files: list[Path]) -> None:
        read = [np.frombuffer(path.read_bytes(), np.uint8) for path in files]
        if len(read) == 1:
            kept = len(read[0]) // 10
            parts = [read[0][:-kept]], [read[0][-kept:]]
        else:
            parts = [r for k, r in enumerate(read) if k % 20], read[::20]
        self.train, self.validation = (torch.from_numpy(np.concatenate(part)) for part in parts)

    def batches(self, size: Size, device: str, seed: int = 0, split: str = "train") -> Iterator[Tensor]:
        """Rows of ``context`` + 1 bytes from random places, without end."""
        data = self.validation if split == "validation" else self.train
        generator = torch.Generator().manual_seed(seed)
        span = torch.arange(size.context + 1)
        while True:
            starts = torch.randint(len(data) - size.context - 1, (size.batch, 1), generator=generator)
            rows = data[starts + span].long()
            # From pinned memory the copy does not wait for the steps before it.
            yield rows.pin_memory().to(device, non_blocking=True) if device == "cuda" else rows


def kept_for_backward(model: nn.Module, forward: Callable[[], object]) -> float:
    """Megabytes that autograd saves in one forward pass, each storage once, without the parameters."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    seen = dict[int, int]()

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        forward()
    return sum(seen.values()) / 1e6


def library_sources() -> Text:
    """Python's own library."""
    root = Path(sysconfig.get_path("stdlib"))
    files = [
        path for path in sorted(root.rglob("*.py")) if not LEFT_OUT & set(path.relative_to(root).parts[:-1])
    ]
    return Text(files)


def documentation() -> Text:
    """Python's help texts, plain English."""
    return Text([Path(sysconfig.get_path("stdlib")) / OTHER_TEXT / "topics.py"])


class Block(nn.Module):
    """Attention, then a gated inner layer; RMS norms in front."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        d, self.heads = size.width, size.heads
        self.norm1, self.norm2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.gate, self.up = (nn.Linear(d, size.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(size.inner, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, d = x.shape
        qkv = self.qkv(self.norm1(x)).view(rows, length, 3, self.heads, d // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, d))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class LanguageModel(nn.Module):
    """Bytes in, a distribution over the next byte out."""

    def __init__(self, size: Size, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.size = size
        self.embedding = nn.Embedding(256, size.width)
        self.position = nn.Embedding(size.context, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm, self.head = nn.RMSNorm(size.width), nn.Linear(size.width, 256, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                deep = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / (math.sqrt(2 * size.layers) if deep else 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.embedding(x) + self.position.weight[: x.shape[1]]
        for block in self.blocks:
            y = block(y)
        return self.head(self.norm(y))


def loss(model: nn.Module, rows: Tensor) -> Tensor:
    """Cross-entropy of the next byte, in nats."""
    return F.cross_entropy(model(rows[:, :-1]).float().flatten(0, 1), rows[:, 1:].flatten())


@torch.no_grad()
def validate(model: nn.Module, text: Text, size: Size, device: str, batches: int = 8) -> float:
    """The loss on the same rows of the validation bytes for everybody."""
    rows = text.batches(size, device, seed=1234, split="validation")
    with precision(device):
        return sum(float(loss(model, next(rows))) for _ in range(batches)) / batches


def train_from_scratch(
    model: LanguageModel,
    text: Text,
    size: Size,
    device: str,
    steps: int,
    adam: bool = False,
    seed: int = 0,
    most: float = math.inf,
) -> tuple[int, float]:
    """With Muon unless AdamW alone is wanted; returns the steps and seconds it took."""
    rate = 3e-3 if adam else 1e-2
    return train(model, text, size, device, steps=steps, rate=rate, muon=not adam, seed=seed, most=most)


def precision(device: str) -> torch.autocast:
    """Arithmetic in bfloat16 on a GPU, float32 elsewhere."""
    return torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda")


def optimisers(model: nn.Module, rate: float, muon: bool) -> list[torch.optim.Optimizer]:
    """AdamW. Muon takes over the matrices inside the blocks if wished: from scratch it needs a quarter of the steps."""
    learned = {name: p for name, p in model.named_parameters() if p.requires_grad}
    matrices = {name: p for name, p in learned.items() if muon and p.ndim == 2 and "blocks" in name}
    others = [p for name, p in learned.items() if name not in matrices]
    found: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=0.0)
    ]
    if matrices:
        found.append(torch.optim.Muon(list(matrices.values()), lr=0.02, momentum=0.9, weight_decay=0.0))
    return found


def train(
    model: nn.Module,
    text: Text,
    size: Size,
    device: str,
    *,
    steps: int,
    rate: float,
    muon: bool = False,
    title: str = "training",
    seed: int = 0,
    most: float = math.inf,
) -> tuple[int, float]:
    """Train all parameters that ask for it, with a warm-up and a cosine; returns the steps and seconds it took.

    After ``most`` seconds it has ended, with fewer steps if need be: the cosine follows the time then.
    """
    both = optimisers(model, rate, muon)
    groups = [(group, group["lr"]) for optimiser in both for group in optimiser.param_groups]
    rows, begin, done = text.batches(size, device, seed), time.perf_counter(), 0
    bar = tqdm(range(steps), desc=title, leave=False, mininterval=1)
    for step in bar:
        progress = max(step / steps, (time.perf_counter() - begin) / most)
        if progress >= 1:
            break
        shape = min(1.0, (step + 1) / max(1, steps // 20)) * (0.55 + 0.45 * math.cos(math.pi * progress))
        for group, highest in groups:
            group["lr"] = highest * shape
        model.zero_grad()
        with precision(device):
            value = loss(model, next(rows))
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimiser in both:
            optimiser.step()
        done = step + 1
        if done % 50 == 0:
            bar.set_postfix(loss=f"{value.item():.3f}")
    if device == "cuda":
        torch.cuda.synchronize()
    return done, time.perf_counter() - begin
