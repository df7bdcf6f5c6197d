"""Hugging Face models as they are: batches are mappings with labels, outputs are
objects with logits.

The models are built from tiny configurations, with random weights, in float64. What
`fit` must find is computed beside it from the features that the backbone itself
returns.
"""

import warnings

import pytest
import torch
from cases import seeded

import laplacebridge as lb

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its dependencies use what Python has deprecated
    transformers = pytest.importorskip(
        "transformers",
        minversion="5",
        reason="needs transformers: `pip install -c constraints.txt transformers`",
    )

pytestmark = pytest.mark.crosscheck

PRIOR = 0.7
NUM_CLASSES = 5
NUM_BATCHES, BATCH_SIZE, LENGTH, VOCABULARY = 3, 4, 6, 30
IGNORED = -100
TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}


def built(kind, config, *, deviation=1.0):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = kind(config).double()
        # trained-like: probabilities far from uniform, and a bias that matters
        head = model.get_output_embeddings() or next(
            module
            for module in reversed(list(model.modules()))
            if isinstance(module, torch.nn.Linear)
        )
        with torch.no_grad():
            head.weight.normal_(std=deviation)
            if head.bias is not None:
                head.bias.normal_()
    return model, head  # in training mode, with dropout, as `from_config` leaves it


def images(seed):
    generator = seeded(seed)
    pixels = torch.randn(BATCH_SIZE, 3, 32, 32, generator=generator, dtype=torch.float64)
    return {
        "pixel_values": pixels,
        "labels": torch.randint(NUM_CLASSES, (BATCH_SIZE,), generator=generator),
    }


def sentences(seed):
    """Padded sentences with one label each, as a tokenizer and a collator make them."""
    generator = seeded(seed)
    ids = torch.randint(VOCABULARY, (BATCH_SIZE, LENGTH), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, -2:] = 0
    labels = torch.randint(NUM_CLASSES, (BATCH_SIZE,), generator=generator)
    return transformers.BatchEncoding({"input_ids": ids, "attention_mask": mask, "labels": labels})


def tagged_sentences(seed):
    """A label for every token; special tokens and padding have none."""
    batch = sentences(seed)
    batch["labels"] = torch.randint(NUM_CLASSES, (BATCH_SIZE, LENGTH), generator=seeded(seed + 100))
    batch["labels"][:, 0] = IGNORED
    batch["labels"][batch["attention_mask"] == 0] = IGNORED
    return batch


def resnet():
    config = transformers.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 12],
        depths=[1, 1],
        layer_type="basic",
        num_labels=NUM_CLASSES,
    )
    model, head = built(
        transformers.ResNetForImageClassification, config, deviation=0.1
    )  # its features are large
    return (
        model,
        head,
        images,
        lambda batch: model.resnet(batch["pixel_values"]).pooler_output.flatten(1),
    )


def vision_transformer():
    config = transformers.ViTConfig(
        image_size=32,
        patch_size=16,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        num_labels=NUM_CLASSES,
    )
    model, head = built(transformers.ViTForImageClassification, config)
    return (
        model,
        head,
        images,
        lambda batch: model.vit(batch["pixel_values"]).last_hidden_state[:, 0],
    )


def text_classifier():
    config = transformers.BertConfig(**TEXT, intermediate_size=16, num_labels=NUM_CLASSES)
    model, head = built(transformers.BertForSequenceClassification, config)
    return model, head, sentences, lambda batch: model.bert(**inputs_of(batch)).pooler_output


def token_classifier():
    config = transformers.BertConfig(**TEXT, intermediate_size=16, num_labels=NUM_CLASSES)
    model, head = built(transformers.BertForTokenClassification, config)
    return (
        model,
        head,
        tagged_sentences,
        lambda batch: model.bert(**inputs_of(batch)).last_hidden_state,
    )


MODELS = {
    model.__name__: model
    for model in (resnet, vision_transformer, text_classifier, token_classifier)
}
EVERY = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)


def inputs_of(batch):
    return {name: value for name, value in batch.items() if name != "labels"}


def loader_of(make_batch):
    return [make_batch(seed) for seed in range(NUM_BATCHES)]


def seen(model, features, batch):
    """Features with the constant one, one row per prediction, from the backbone in
    evaluation mode.
    """
    modes = {module: module.training for module in model.modules()}
    model.eval()
    with torch.no_grad():
        rows = features(batch)
    for module, training in modes.items():
        module.training = training
    return rows.flatten(0, -2)


def augmented(rows, head):
    return rows if head.bias is None else torch.cat([rows, rows.new_ones(len(rows), 1)], -1)


def expected_variance(rows, queries, head):
    """Variances of the logits from the dense inverse of Kronecker factors plus prior."""
    num_classes = head.weight.shape[0]
    probabilities = head(rows).softmax(-1).detach()
    class_factor = probabilities.sum(0).diag() - probabilities.T @ probabilities
    rows, queries = augmented(rows, head), augmented(queries, head)
    precision = torch.kron(class_factor, rows.T @ rows / len(rows))
    precision += PRIOR * torch.eye(len(precision), dtype=torch.float64)
    covariance = torch.linalg.inv(precision).view(
        num_classes, rows.shape[1], num_classes, rows.shape[1]
    )
    return torch.einsum("bd,kdke,be->bk", queries, covariance, queries)


@EVERY
def test_the_posterior_is_that_of_the_backbones_features(make):
    model, head, make_batch, features = make()
    batches = loader_of(make_batch)
    modes = [module.training for module in model.modules()]
    classifier = lb.fit(model, batches, prior_precision=PRIOR, progress=False)
    assert [module.training for module in model.modules()] == modes
    assert isinstance(classifier.posterior, lb.laplace.KronPosterior)
    assert classifier.network.head is head

    rows = torch.cat([seen(model, features, batch) for batch in batches])
    labels = torch.cat([batch["labels"].flatten() for batch in batches])
    kept = labels != IGNORED
    query = make_batch(99)
    queries = seen(model, features, query)
    with torch.no_grad():
        gaussian = classifier.logits(**inputs_of(query))
        logits = head(rows[kept])
        torch.testing.assert_close(gaussian.mean, head(queries), rtol=1e-10, atol=1e-10)
    expected = expected_variance(rows[kept], queries, head)
    torch.testing.assert_close(gaussian.variance, expected, rtol=1e-8, atol=1e-10)
    alone = augmented(queries, head).square().sum(-1, keepdim=True) / PRIOR
    assert (
        expected <= 0.95 * alone
    ).all()  # the data had a say, so this was no comparison of priors
    loss = torch.nn.functional.cross_entropy(logits, labels[kept], reduction="sum")
    assert classifier.log_likelihood == pytest.approx(-loss.item(), rel=1e-10)


@EVERY
def test_the_models_own_loss_is_the_likelihood(make):
    model, _, make_batch, _ = make()
    batch = make_batch(0)
    classifier = lb.fit(model, [batch], prior_precision=PRIOR, progress=False)
    with torch.no_grad():
        loss = model.eval()(**batch).loss.item()  # a mean over the labels that are not ignored
    count = (batch["labels"] != IGNORED).sum().item()
    assert classifier.log_likelihood == pytest.approx(-loss * count, rel=1e-10)


@EVERY
def test_predictions_are_dirichlets_around_the_models_logits(make):
    model, _, make_batch, _ = make()
    classifier = lb.fit(model, loader_of(make_batch), prior_precision=1e6, progress=False)
    query = inputs_of(make_batch(99))
    with torch.no_grad():
        prediction = classifier(**query)
        expected = model.eval()(**query).logits.softmax(-1)  # (B, T, K) where there are tokens
    assert prediction.mean.shape == expected.shape
    # so strong a prior leaves almost no variance
    torch.testing.assert_close(prediction.mean, expected, rtol=0, atol=1e-4)
    torch.testing.assert_close(
        classifier.with_bridge(lb.bridges.delta_bridge)(**query).mean, expected, rtol=0, atol=1e-4
    )


def test_without_labels_all_tokens_count():
    model, head, make_batch, features = token_classifier()
    batches = [inputs_of(batch) for batch in loader_of(make_batch)]
    classifier = lb.fit(model, batches, prior_precision=PRIOR, progress=False)
    rows = torch.cat([seen(model, features, batch) for batch in batches])
    with torch.no_grad():
        variance = classifier.logits(**batches[0]).variance
    queries = seen(model, features, batches[0])
    torch.testing.assert_close(
        variance, expected_variance(rows, queries, head), rtol=1e-8, atol=1e-10
    )


def language_model():
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=LENGTH,
        n_embd=8,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    model, head = built(transformers.GPT2LMHeadModel, config)
    assert head.weight is model.transformer.wte.weight  # tied
    return model, head


def next_tokens(batch):
    """Labels in the position that predicts them; the last token predicts nothing known."""
    ids = batch["input_ids"]
    return torch.cat([ids[:, 1:], torch.full_like(ids[:, :1], IGNORED)], -1)


def test_a_language_model_with_a_tied_head_has_one_prediction_per_token():
    model, head = language_model()
    batches = [inputs_of(sentences(seed)) for seed in range(NUM_BATCHES)]
    labelled = [{**batch, "labels": batch["input_ids"]} for batch in batches]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    classifier = lb.fit(model, labelled, prior_precision=PRIOR, progress=False)
    assert classifier.network.head is head

    def features(batch):
        return model.transformer(**batch).last_hidden_state

    rows = torch.cat([seen(model, features, batch) for batch in batches])
    labels = torch.cat([next_tokens(batch).flatten() for batch in batches])
    queries = seen(model, features, batches[0])
    with torch.no_grad():
        gaussian = classifier.logits(**batches[0])
        prediction = classifier(**batches[0])
    assert gaussian.mean.shape == (BATCH_SIZE * LENGTH, VOCABULARY)
    assert prediction.mean.shape == (BATCH_SIZE, LENGTH, VOCABULARY)
    torch.testing.assert_close(
        gaussian.variance,
        expected_variance(rows[labels != IGNORED], queries, head),
        rtol=1e-8,
        atol=1e-10,
    )
    with torch.no_grad():
        model.eval()
        torch.testing.assert_close(
            gaussian.mean, model(**batches[0]).logits.flatten(0, 1), rtol=1e-10, atol=1e-10
        )
        # its own loss moves the labels itself, and is a mean over what is left
        losses = [model(**batch, labels=batch["input_ids"]).loss.item() for batch in batches]
    # in float32, whatever the model's type
    assert classifier.log_likelihood == pytest.approx(
        -sum(losses) * BATCH_SIZE * (LENGTH - 1), rel=1e-6
    )
    # embeddings and head are one tensor, which the classifier copies and must not touch
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_a_fitted_language_model_is_saved_and_loaded(tmp_path):
    model, _ = language_model()
    batch = inputs_of(sentences(0))
    classifier = lb.fit(model, [batch], prior_precision=PRIOR, progress=False)
    lb.save(classifier, tmp_path / "fitted.safetensors")
    loaded = lb.load(tmp_path / "fitted.safetensors", model)
    with torch.no_grad():
        torch.testing.assert_close(
            loaded(**batch).mean, classifier(**batch).mean, rtol=1e-12, atol=0
        )


DECODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@pytest.mark.parametrize(
    ("name", "options"),
    [("Cohere", {"logit_scale": 0.25}), ("Granite", {"logits_scaling": 4.0})],
)
def test_language_models_that_scale_their_logits_are_understood(name, options):
    config = getattr(transformers, f"{name}Config")(**DECODER, **options)
    model, _ = built(getattr(transformers, f"{name}ForCausalLM"), config)
    batch = dict(sentences(0))
    batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, IGNORED)
    classifier = lb.fit(model, [batch], prior_precision=1e8, progress=False)
    assert classifier.network.scale == pytest.approx(0.25, rel=1e-6)
    with torch.no_grad():
        own = model.eval()(**batch)
        mean = classifier(batch).mean
    kept = batch["attention_mask"].bool()
    torch.testing.assert_close(mean[kept], own.logits.softmax(-1)[kept], rtol=0, atol=1e-5)
    count = int((batch["labels"][:, 1:] != IGNORED).sum())
    assert -classifier.log_likelihood / count == pytest.approx(float(own.loss), rel=1e-5)


def test_capped_logits_are_refused_with_the_reason():
    config = transformers.Gemma2Config(**DECODER, head_dim=8, final_logit_softcapping=1.0)
    model, _ = built(transformers.Gemma2ForCausalLM, config)
    batch = dict(sentences(0)) | {"labels": sentences(0)["input_ids"]}
    with pytest.raises(lb.HeadNotFoundError, match="something follows it"):
        lb.fit(model, [batch], prior_precision=1.0, progress=False)
