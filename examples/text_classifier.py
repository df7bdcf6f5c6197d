"""A Hugging Face text classifier that says how sure it is: `python examples/text_classifier.py`."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

import laplacebridge as lb

TOPICS = {
    "weather": ["rain", "snow", "storm", "sunshine", "wind", "fog", "clouds", "thunder", "frost", "heat"],
    "sport": ["match", "goal", "team", "race", "coach", "stadium", "player", "score", "league", "medal"],
    "food": ["bread", "soup", "cheese", "recipe", "kitchen", "flavour", "spices", "dinner", "oven", "salad"],
}
torch.manual_seed(0)

# A tiny model with a tiny vocabulary, trained here. For a published one only this part changes, to
#     tokenizer = AutoTokenizer.from_pretrained(name)
#     model = AutoModelForSequenceClassification.from_pretrained(name)
special = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
words = [*special.values(), "they", "talk", "about", "and", *(word for topic in TOPICS.values() for word in topic)]
numbers = {word: number for number, word in enumerate(words)}
vocabulary = Tokenizer(models.WordLevel(numbers, unk_token=special["unk_token"]))
vocabulary.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=vocabulary, **special)
sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
config = BertConfig(vocab_size=len(words), num_labels=len(TOPICS), initializer_range=0.1, **sizes)
model = BertForSequenceClassification(config)


def labelled_sentence(used):
    """Two words of a topic, from some of its ten."""
    label = int(torch.randint(len(TOPICS), ()))
    known = list(TOPICS.values())[label][used]
    first, second = (known[index] for index in torch.randperm(len(known))[:2])
    return f"they talk about {first} and {second}", label


def collate(pairs):
    """A batch as Hugging Face has them, a mapping with labels: `fit` takes it as it is."""
    texts, labels = zip(*pairs)
    return {**tokenizer(texts, padding=True, return_tensors="pt"), "labels": torch.tensor(labels)}


SEEN, NEW, ALL = slice(6), slice(6, 10), slice(10)  # text to come has words that the training had not
train, validation = (
    DataLoader([labelled_sentence(used) for _ in range(300)], batch_size=50, collate_fn=collate) for used in (SEEN, ALL)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for _ in range(10):
    for batch in train:
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()

classifier = lb.fit(model.eval(), train, val_loader=validation, progress=False)

print("500 sentences from            accuracy   NLL, network   NLL, bridge   mutual information")
for title, used in {"words of the training": SEEN, "words that it had not": NEW}.items():
    batch = collate([labelled_sentence(used) for _ in range(500)])
    labels = batch.pop("labels")
    with torch.no_grad():
        network, bridge = model(**batch).logits.softmax(-1), classifier(**batch)
    nlls = [lb.metrics.nll(prediction, labels) for prediction in (network, bridge)]
    doubt = lb.scores.mutual_information(bridge).mean()
    print(f"{title:24} {lb.metrics.accuracy(bridge, labels):13.3f} {nlls[0]:14.3f} {nlls[1]:13.3f} {doubt:20.3f}")

text = "they talk about parliament and election"
with torch.no_grad():
    inputs = tokenizer([text], return_tensors="pt")
    network, bridge = model(**inputs).logits.softmax(-1), classifier(**inputs)
print(f'\n"{text}"   network   bridge   95 % bounds')
for index, topic in enumerate(TOPICS):
    low, high = (bound.item() for bound in bridge.marginal(index).interval(0.95))
    print(f"{topic:41} {network[0, index]:9.2f} {bridge.mean[0, index]:8.2f}   {low:.2f} to {high:.2f}")
