"""Quantise a language model with rotations, learned and fixed, beside plain rounding.

A byte-level transformer is trained on the spot. Each Linear gets a transform T of its inputs: T x meets W T⁻¹, and both
are rounded to few bits. Fixed transforms are compared with learned ones. Those minimise the Kullback-Leibler divergence
from the unquantised model; their gradient passes straight through the rounding. Every method cuts its ranges by ratios
chosen from the data, one for the weights and one for the inputs of a Linear; learned methods go on learning them.

python examples/quantise.py [--full] [--settings W4A4 W2] [--seconds 120] [--text english] [--seed 1]
python examples/quantise.py --full --seconds 240 --methods Hadamard "fitted pairs and scales, learned" --earlier FILE
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from pathlib import Path

import torch
from language_model import (
    FULL,
    SMALL,
    LanguageModel,
    Size,
    Text,
    documentation,
    library_sources,
    train_from_scratch,
)
from quantise_record import Record
from quantise_study import HARD, METHODS, SETTINGS, Study, compare
from quantised_model import with_outliers
from time_limit import Limit

TRAINING = 0.2  # of the time for everything, at most, with --seconds
TEXTS = {"python": library_sources, "english": documentation}


def arguments() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the large model, for a GPU")
    parser.add_argument(
        "--settings", nargs="+", choices=SETTINGS, help="all of them with --full, else W4A4 and W2"
    )
    parser.add_argument(
        "--text", choices=TEXTS, default="python", help="that the model learns and is tried on"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the model and its training")
    parser.add_argument(
        "--model", type=Path, help="a file: the trained model is kept there, or read if it exists"
    )
    parser.add_argument("--train-steps", type=int, help="of the model itself")
    parser.add_argument("--train-seconds", type=float, help="at most; a fifth of --seconds unless given")
    parser.add_argument("--adam", action="store_true", help="train the model with AdamW rather than Muon")
    parser.add_argument(
        "--steps",
        type=int,
        nargs="+",
        help="of learning, per method and setting; with several numbers one pass after another",
    )
    learned = [name for name, method in METHODS.items() if method.rate]
    parser.add_argument(
        "--learned",
        nargs="+",
        choices=learned,
        default=learned,
        help="learned methods to try, beside all others",
    )
    parser.add_argument("--methods", nargs="+", choices=METHODS, help="these methods only, in this order")
    parser.add_argument(
        "--earlier",
        type=Path,
        help="a file of the same configuration: its rows are kept where there are no new ones",
    )
    parser.add_argument(
        "--outliers", action="store_true", help="put outlier channels in, as large models have them"
    )
    parser.add_argument("--seconds", type=float, help="for everything; what takes longer is left out")
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    options = parser.parse_args()
    if options.earlier is not None and not options.earlier.is_file():  # before the model is trained
        parser.error(f"--earlier: expected a file, got nothing at {options.earlier}")
    return options


def trained(
    options: argparse.Namespace, text: Text, size: Size, device: str, steps: int
) -> tuple[LanguageModel, dict[str, float]]:
    """The model, from its file if there is one, and the steps and seconds that its training took."""
    model = LanguageModel(size, options.seed).to(device)
    if options.model is not None and options.model.exists():
        model.load_state_dict(torch.load(options.model, map_location=device))
        return model, {}
    most = options.train_seconds or (math.inf if options.seconds is None else TRAINING * options.seconds)
    steps, seconds = train_from_scratch(model, text, size, device, steps, options.adam, options.seed, most)
    numbers = sum(p.numel() for p in model.parameters())
    print(
        f"{numbers / 1e6:.1f} million parameters, trained for {steps} steps in {seconds:.0f} s on {device}",
        flush=True,
    )
    if options.model is not None:
        torch.save(model.state_dict(), options.model)
    return model, {"steps": steps, "seconds": round(seconds, 1)}


def main() -> None:
    """Train, quantise in every way, print, draw."""
    options = arguments()
    limit = Limit(options.seconds)
    options.output.mkdir(parents=True, exist_ok=True)
    device = "cuda" if options.full and torch.cuda.is_available() else "cpu"
    size, text = FULL if options.full else SMALL, TEXTS[options.text]()
    config = {
        "size": dataclasses.asdict(size),
        "text": options.text,
        "seed": options.seed,
        "adam": options.adam,
        "train_steps": options.train_steps or (900 if options.full else 150),
        "outliers": options.outliers,
        "batches": 16,
    }
    model, training = trained(options, text, size, device, config["train_steps"])
    if options.outliers:
        print("outlier channels are put in as large models show them; the function stays the same")
        model = with_outliers(model)
    study = Study(model, text, size, device, config["batches"])
    print(f"validation loss without quantisation: {study.plain:.4f} nats per byte", flush=True)
    facts = {"device": device, "loss": study.plain, "trained": training}
    record = Record(options.output / "quantise.json", facts, config, options.earlier)
    settings = options.settings or (list(SETTINGS) if options.full else list(HARD))
    names = options.methods or [n for n, method in METHODS.items() if not method.rate or n in options.learned]
    compare(study, settings, names, options.steps or [200 if options.full else 15], record, limit)


if __name__ == "__main__":
    main()
