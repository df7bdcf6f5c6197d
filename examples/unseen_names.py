"""Does a language model's epistemic part find names that it has never seen?
`python examples/unseen_names.py`, with `--seed 1` for other names, texts and weights.

A small model learns who lives where and what they eat. Where somebody lives is a fact;
what they eat is drawn anew each time, so that doubt about it is no lack of knowledge.
Then texts come about people whom the training never named.

At one and the same place of the text, entropy tells names apart as well as the
epistemic part does: there is one reason only for doubt. Among all tokens it does not,
because what cannot be known looks like what was never learnt.
"""

import argparse
import random

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, set_seed

import laplacebridge as lb
from laplacebridge import transformers as lbt

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
seed = parser.parse_args().seed
set_seed(seed)
draw = random.Random(seed)  # noqa: S311
SYLLABLES = ["ba", "ben", "da", "dor", "el", "fa", "gil", "ha", "im", "jo", "ka", "lin"]
SYLLABLES += ["ma", "nor", "o", "pe", "ri", "sa", "tu", "vi"]
NAMES = draw.sample([f"{a}{b}{c}" for a in SYLLABLES for b in SYLLABLES for c in "ns"], 240)
SEEN, UNSEEN = NAMES[:160], NAMES[160:]
CITIES = ["Ulm", "Rome", "Oslo", "Lima", "Bonn", "Kyoto"]
FOODS = ["bread", "soup", "rice", "fish", "cheese", "beans", "plums", "nuts"]
HOME = {name: draw.choice(CITIES) for name in NAMES}


def text_about(name):
    return f"we know that {name} lives in {HOME[name]} and likes to eat {draw.choice(FOODS)} today"


# A tokenizer with a token for every word; names that never come are tokens as well.
special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "eos_token": "[END]"}
words = [*special.values(), "we", "know", "that", "lives", "in", "and", "likes", "to", "eat"]
words += ["today", *NAMES, *CITIES, *FOODS]
numbers = {word: number for number, word in enumerate(words)}
built = Tokenizer(models.WordLevel(numbers, unk_token=special["unk_token"]))
built.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=built, **special)

config = GPT2Config(
    vocab_size=len(words),
    n_positions=16,
    n_embd=64,
    n_layer=2,
    n_head=4,
    bos_token_id=2,
    eos_token_id=2,
    pad_token_id=0,
)
model = GPT2LMHeadModel(config)  # its embeddings are its head
train = [text_about(draw.choice(SEEN)) for _ in range(3000)]
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for _ in range(500):
    batch = tokenizer(draw.sample(train, 64), return_tensors="pt")
    loss = model(input_ids=batch["input_ids"], labels=batch["input_ids"]).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

held_out = [text_about(draw.choice(SEEN)) for _ in range(300)]
language = lbt.fit(model.eval(), train, held_out, tokenizer=tokenizer, progress=False)

seen, unseen = (
    language([text_about(draw.choice(names)) for _ in range(400)]) for names in (SEEN, UNSEEN)
)


def values(texts, name, place):
    return torch.cat([getattr(text, name)[place] for text in texts])


CITY, FOOD, AFTER_THE_NAME = slice(5, 6), slice(10, 11), slice(3, None)
rows = {
    "where they live, against where the others live": (CITY, CITY),
    "what they eat, against what the others eat": (FOOD, FOOD),
    "where they live, against all that is said of others": (CITY, AFTER_THE_NAME),
}
print("Tokens about names never seen, against tokens about names of the training: AUROC")
print(f"{'':55} entropy   epistemic part")
for title, (of_unseen, of_seen) in rows.items():
    found = [
        lb.metrics.auroc(values(seen, name, of_seen), values(unseen, name, of_unseen))
        for name in ("total", "epistemic")
    ]
    print(f"{title:55} {found[0]:7.3f} {found[1]:16.3f}")

made = language.generate(f"we know that {UNSEEN[0]} lives in", max_new_tokens=6)
print(f"\n{UNSEEN[0]}, who was never named, lives in … {made.text}")
for token, probability, epistemic, total in zip(
    made.tokens, made.probability, made.epistemic, made.total
):
    print(f"  {token:8} p {probability:.2f}   entropy {total:.3f}   epistemic {epistemic:.3f}")
print(f"epistemic part of the whole: {made.epistemic_sum:.3f}, at most {made.epistemic_max:.3f}")
