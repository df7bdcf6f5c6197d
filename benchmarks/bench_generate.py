"""What it costs to collect probability and epistemic part of every token while a
language model generates: processor time of a step with it over that of a step without,
in turn, in one run.

    python benchmarks/bench_generate.py            GPT-2 with 12 layers, 50 257 tokens
    python benchmarks/bench_generate.py --quick    2 layers, 5 000 tokens, a few steps

Weights are random, which changes no time: every step chooses one token.
"""

import argparse
import json
import statistics
import time
import warnings
from pathlib import Path

import torch
from machine import description
from torch import nn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its dependencies use what Python has deprecated
    from transformers import GPT2Config, GPT2LMHeadModel

import laplacebridge as lb
from laplacebridge.transformers import LanguageModel

RESULTS = Path(__file__).parent / "results" / "generate.json"
STEPS, REPETITIONS, PROMPT = 32, 11, 16
BATCHES = (1, 4)


def language_model(layers: int, vocabulary: int, width: int) -> LanguageModel:
    """A fitted model with random weights."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=vocabulary,
        n_layer=layers,
        n_embd=width,
        n_head=width // 64,
        bos_token_id=0,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = GPT2LMHeadModel(config).eval()
    ids = torch.randint(vocabulary, (4, 32))
    batches = [{"input_ids": ids, "labels": ids}]
    classifier = lb.fit(model, batches, prior_precision=10.0, progress=False)
    return LanguageModel(classifier)


def seconds(call: object, inputs: dict[str, torch.Tensor], steps: int) -> float:
    """Processor time of a step, which other load disturbs least."""
    start = time.process_time()
    call(**inputs, max_new_tokens=steps, min_new_tokens=steps, do_sample=False)  # type: ignore[operator]
    return (time.process_time() - start) / steps


def measured(language: LanguageModel, batch: int, steps: int, repetitions: int) -> dict[str, float]:
    """Medians over repetitions in turn, and the median of their ratios."""
    ids = torch.randint(language.classifier.num_classes, (batch, PROMPT))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    model: nn.Module = language.model
    with torch.no_grad():
        pairs = [
            (seconds(model.generate, inputs, steps), seconds(language.generate, inputs, steps))
            for _ in range(repetitions + 1)
        ][1:]
    return {
        "batch": batch,
        "steps": steps,
        "seconds_per_step": statistics.median(plain for plain, _ in pairs),
        "seconds_per_step_collecting": statistics.median(ours for _, ours in pairs),
        "ratio": statistics.median(ours / plain for plain, ours in pairs),
    }


def main() -> None:
    """Measures, and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    quick = given.quick
    torch.set_num_threads(1)  # processor time of several would add up
    layers, vocabulary, width = (2, 5_000, 128) if quick else (12, 50_257, 768)
    language = language_model(layers, vocabulary, width)
    steps, repetitions = (16, 2) if quick else (STEPS, REPETITIONS)
    rows = [measured(language, batch, steps, repetitions) for batch in BATCHES]
    for row in rows:
        print(
            f"{row['batch']} texts at once: {1e3 * row['seconds_per_step']:.2f} ms a step, with"
            f" collecting {row['ratio']:.3f} times as long"
        )
    output = given.output or (None if quick else RESULTS)
    if output is not None:
        held = {
            "command": f"python benchmarks/bench_generate.py{' --quick' * quick}",
            "machine": description(),
            "layers": layers,
            "vocabulary": vocabulary,
            "width": width,
            "rows": rows,
        }
        output.write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
