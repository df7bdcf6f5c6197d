"""A Hugging Face text classifier that says how sure it is: `python
examples/text_classifier.py`.
"""

import random

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    set_seed,
)

import laplacebridge as lb

TOPICS = {
    "weather": [
        "rain",
        "snow",
        "storm",
        "sunshine",
        "wind",
        "fog",
        "clouds",
        "thunder",
        "frost",
        "heat",
    ],
    "sport": [
        "match",
        "goal",
        "team",
        "race",
        "coach",
        "stadium",
        "player",
        "score",
        "league",
        "medal",
    ],
    "food": [
        "bread",
        "soup",
        "cheese",
        "recipe",
        "kitchen",
        "flavour",
        "spices",
        "dinner",
        "oven",
        "salad",
    ],
}
set_seed(0)

# A tiny model with a tiny vocabulary, trained here. For a published one only this part
# changes, to `AutoTokenizer.from_pretrained(name)` and
# `AutoModelForSequenceClassification.from_pretrained(name)`.
special = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
words = [
    *special.values(),
    "they",
    "talk",
    "about",
    "and",
    *(word for topic in TOPICS.values() for word in topic),
]
vocabulary = Tokenizer(
    models.WordLevel(dict(zip(words, range(len(words)))), unk_token=special["unk_token"])
)
vocabulary.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=vocabulary, **special)
sizes = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
config = BertConfig(vocab_size=len(words), num_labels=len(TOPICS), initializer_range=0.1, **sizes)
model = BertForSequenceClassification(config)


def sentences(count, used):
    """Two words of a topic in each, as Hugging Face has a batch: a mapping with labels,
    which `fit` takes as it is.
    """
    labels, topics = torch.randint(len(TOPICS), (count,)), list(TOPICS.values())
    texts = [
        f"they talk about {' and '.join(random.sample(topics[label][used], 2))}" for label in labels
    ]
    return {**tokenizer(texts, padding=True, return_tensors="pt"), "labels": labels}


SEEN, NEW, ALL = (
    slice(6),
    slice(6, 10),
    slice(10),
)  # text to come has words that the training had not
train, validation = (
    [sentences(50, used) for _ in range(6)] for used in (SEEN, ALL)
)  # or any DataLoader
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for batch in 10 * train:
    optimizer.zero_grad()
    model(**batch).loss.backward()
    optimizer.step()
classifier = lb.fit(model.eval(), train, val_loader=validation, progress=False)
torch.set_grad_enabled(False)  # from here on it only predicts

print("500 sentences from            accuracy   NLL, network   NLL, bridge   mutual information")
for title, used in {"words of the training": SEEN, "words that it had not": NEW}.items():
    batch = sentences(500, used)
    labels = batch.pop("labels")
    network, bridge = model(**batch).logits.softmax(-1), classifier(**batch)
    losses = f"{lb.metrics.nll(network, labels):14.3f} {lb.metrics.nll(bridge, labels):13.3f}"
    doubt = lb.scores.mutual_information(bridge).mean()
    print(f"{title:24} {lb.metrics.accuracy(bridge, labels):13.3f} {losses} {doubt:20.3f}")

text = "they talk about parliament and election"
inputs = tokenizer([text], return_tensors="pt")
network, bridge = model(**inputs).logits.softmax(-1), classifier(**inputs)
print(f'\n"{text}"   network   bridge   95 % bounds')
for topic, *numbers in zip(
    TOPICS, network[0], bridge.mean[0], *(bound[0] for bound in bridge.interval(0.95))
):
    alone, mean, low, high = (float(number) for number in numbers)
    print(f"{topic:41} {alone:9.2f} {mean:8.2f}   {low:.2f} to {high:.2f}")
