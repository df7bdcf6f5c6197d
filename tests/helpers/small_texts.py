"""Texts made here, a tokenizer for them, and models of Hugging Face trained on them for
a few seconds.
"""

import random
import warnings

import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its dependencies use what Python has deprecated
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

TOPICS = {
    "weather": ["rain", "snow", "storm", "sunshine", "wind", "fog", "clouds", "thunder"],
    "sport": ["match", "goal", "team", "race", "coach", "stadium", "player", "score"],
    "food": ["bread", "soup", "cheese", "recipe", "kitchen", "flavour", "dinner", "oven"],
}
COMMON = [
    "they",
    "talk",
    "about",
    "and",
    "of",
    "the",
    "a",
    "much",
    ".",
    "in",
    "summer",
    "winter",
    "today",
]
SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "bos_token": "[CLS]",
    "eos_token": "[SEP]",
}
WORDS = [*SPECIAL.values(), *COMMON, *(word for topic in TOPICS.values() for word in topic)]
SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
LONGEST = 16


def tokenizer_of(words=WORDS):
    numbers = {word: number for number, word in enumerate(words)}
    built = Tokenizer(models.WordLevel(numbers, unk_token=SPECIAL["unk_token"]))
    built.pre_tokenizer = pre_tokenizers.Whitespace()
    built.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", numbers["[CLS]"]), ("[SEP]", numbers["[SEP]"])],
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=built, model_max_length=LONGEST, **SPECIAL
    )


def sentences(number, seed):
    """Texts about one of three topics; one in eight has a wrong label, so that there is
    something to be unsure of.
    """
    draw, names = random.Random(seed), list(TOPICS)  # noqa: S311
    found = []
    for _ in range(number):
        topic = draw.choice(names)
        first, second = draw.sample(TOPICS[topic], 2)
        filler = " ".join(draw.sample(COMMON[:8], draw.randint(1, 4)))
        label = draw.choice(names) if draw.random() < 0.125 else topic
        text = f"they talk about {first} {filler} {second}"
        found.append({"text": text, "label": names.index(label)})
    return found


def tagged(number, seed, tokenizer):
    """The same with a label for each word: its topic, or none; one in eight is drawn."""
    draw = random.Random(seed)  # noqa: S311
    topics = {word: place + 1 for place, words in enumerate(TOPICS.values()) for word in words}
    found = []
    for example in sentences(number, seed):
        tokens = tokenizer(example["text"], truncation=True)
        words = ["", *example["text"].split(), ""]
        labels = [
            draw.randrange(4) if draw.random() < 0.125 else topics.get(word, 0) for word in words
        ]
        labels[0] = labels[-1] = -100
        found.append({**tokens, "labels": labels})
    return found


def bert(kind, **options):
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        intermediate_size=64,
        max_position_embeddings=LONGEST,
        initializer_range=0.1,
        pad_token_id=0,
        **SIZES,
        **options,
    )
    return kind(config)


def gpt2(kind, **options):
    config = transformers.GPT2Config(
        vocab_size=len(WORDS),
        n_positions=LONGEST,
        n_embd=32,
        n_layer=1,
        n_head=2,
        bos_token_id=2,
        eos_token_id=3,
        pad_token_id=0,
        initializer_range=0.1,
        **options,
    )
    return kind(config)


NAMES = {"id2label": dict(enumerate(TOPICS)), "label2id": {n: i for i, n in enumerate(TOPICS)}}
TAGS = ["none", *TOPICS]
TAG_NAMES = {"id2label": dict(enumerate(TAGS)), "label2id": {n: i for i, n in enumerate(TAGS)}}


def trained(make, batches, steps=150, lr=3e-3):
    """A model trained for some steps, left in evaluation mode."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make()
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        model.train()
        for step in range(steps):
            optimizer.zero_grad()
            model(**batches[step % len(batches)]).loss.backward()
            optimizer.step()
    return model.eval()
