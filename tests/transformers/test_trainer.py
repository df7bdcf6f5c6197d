"""From a `Trainer`: its data, its collator, its tokenizer and its label smoothing."""

import pytest
import torch

small = pytest.importorskip("small_texts", reason="needs the extra `transformers`")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate", reason="`Trainer` needs accelerate: `pip install accelerate`")
from laplacebridge import transformers as lbt  # noqa: E402

pytestmark = [
    pytest.mark.crosscheck,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:'pin_memory'.*:UserWarning"),
]
TOKENIZER = small.tokenizer_of()


def rows(number, seed):
    """Tokenised, with a column that the model does not take."""
    return [
        {**TOKENIZER(row["text"]), "label": row["label"], "text": row["text"]}
        for row in small.sentences(number, seed)
    ]


def trainer_of(folder, smoothing=0.0):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = small.bert(transformers.BertForSequenceClassification, num_labels=3, **small.NAMES)
        arguments = transformers.TrainingArguments(
            output_dir=str(folder),
            per_device_train_batch_size=50,
            num_train_epochs=15,
            learning_rate=3e-3,
            label_smoothing_factor=smoothing,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
            logging_strategy="no",
        )
        trainer = transformers.Trainer(
            model,
            arguments,
            train_dataset=rows(300, 0),
            eval_dataset=rows(700, 1),
            processing_class=TOKENIZER,
        )
        trainer.train()
    return trainer


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_trainer_is_all_that_is_needed(tmp_path, smoothing):
    trainer = trainer_of(tmp_path, smoothing)
    made = lbt.fit(trainer, risk=0.3, progress=False)
    test = small.sentences(200, 2)
    truth = torch.tensor([row["label"] for row in test])
    answers = made([row["text"] for row in test])
    names = list(small.TOPICS)
    right = [answer["label"] == names[label] for answer, label in zip(answers, truth)]
    assert sum(right) > 150
    # with the loss that the trainer minimised, smoothing included
    predicted = torch.from_numpy(trainer.predict(trainer.train_dataset).predictions)
    labels = torch.tensor([row["label"] for row in trainer.train_dataset])
    loss = torch.nn.functional.cross_entropy(predicted, labels, label_smoothing=smoothing)
    assert -made.classifier.log_likelihood / 300 == pytest.approx(float(loss), rel=1e-5)
