"""From a `Trainer`: its data, its collator, its tokenizer and its label smoothing."""

import pytest
import torch

import laplacebridge as lb

small = pytest.importorskip("small_texts", reason="needs the extra `transformers`")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate", reason="`Trainer` needs accelerate: `pip install accelerate`")
from laplacebridge import transformers as lbt  # noqa: E402
from laplacebridge.transformers.batches import FromTrainer  # noqa: E402

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
    # means are as good as the model's own, whatever its labels were smoothed by
    unseen = rows(1000, 2)
    own = torch.from_numpy(trainer.predict(unseen).predictions)
    answers = torch.tensor([row["label"] for row in unseen])
    with torch.no_grad():
        batches = FromTrainer(trainer, unseen).loader()
        ours = torch.cat([made.classifier(batch).mean for batch in batches])
    assert lb.metrics.nll(ours, answers) < 1.01 * float(
        torch.nn.functional.cross_entropy(own, answers)
    )
    # with the loss that the trainer minimised, smoothing included
    predicted = torch.from_numpy(trainer.predict(trainer.train_dataset).predictions)
    labels = torch.tensor([row["label"] for row in trainer.train_dataset])
    loss = torch.nn.functional.cross_entropy(predicted, labels, label_smoothing=smoothing)
    assert -made.classifier.log_likelihood / 300 == pytest.approx(float(loss), rel=1e-5)


def test_each_data_set_has_its_own_batches_whatever_the_trainer_keeps(tmp_path):
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        dataloader_persistent_workers=True,
        dataloader_num_workers=1,
        report_to=[],
        use_cpu=True,
    )
    trainer = transformers.Trainer(
        small.bert(transformers.BertForSequenceClassification, num_labels=3, **small.NAMES),
        arguments,
        train_dataset=rows(30, 0),
        eval_dataset=rows(7, 1),
        processing_class=TOKENIZER,
    )
    own = trainer.get_eval_dataloader()
    held_out = FromTrainer(trainer, trainer.eval_dataset)
    assert len(held_out.loader([0, 2, 4]).dataset) == 3
    assert len(FromTrainer(trainer, trainer.train_dataset).loader().dataset) == 30
    assert len(held_out.loader().dataset) == 7
    assert trainer.get_eval_dataloader() is own


@pytest.mark.parametrize("options", [{"collate": len}, {"batch_size": 2}])
def test_what_a_trainer_has_itself_is_not_taken(tmp_path, options):
    model = small.bert(transformers.BertForSequenceClassification, num_labels=3, **small.NAMES)
    arguments = transformers.TrainingArguments(str(tmp_path), report_to=[], use_cpu=True)
    trainer = transformers.Trainer(model, arguments, train_dataset=rows(3, 0))
    with pytest.raises(lb.InputError, match="per_device_eval_batch_size"):
        lbt.fit(trainer, **options)
