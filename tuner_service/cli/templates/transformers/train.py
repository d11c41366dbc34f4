"""A tiny BERT that counts, trained by Hugging Face's Trainer. Runs alone as well: ``python train.py --lr 0.001``.

Nothing is downloaded. Needs: pip install transformers accelerate
"""

import os
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

import trials
from trials.integrations.transformers import TrialCallback

DEFAULTS = {"lr": 0.002, "hidden": 32, "weight_decay": 0.01, "steps": 60}
WORDS, LENGTH = 16, 12


def main() -> None:
    torch.set_num_threads(1)  # several trials share the machine
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with trials.init(defaults=DEFAULTS) as trial:
        set_seed(trial.seed)
        chosen = trial.parameters
        every = max(1, chosen["steps"] // 3)
        arguments = TrainingArguments(
            output_dir="checkpoints",
            max_steps=chosen["steps"],
            per_device_train_batch_size=32,
            learning_rate=chosen["lr"],
            weight_decay=chosen["weight_decay"],
            eval_strategy="steps",
            eval_steps=every,
            save_strategy="steps",
            save_steps=every,
            save_total_limit=1,
            logging_strategy="no",
            report_to=[],
            dataloader_pin_memory=torch.cuda.is_available(),
            disable_tqdm=True,
        )
        tuning = TrialCallback(trial, metrics=["eval_loss"])  # reports, checkpoints, and the end of what is stopped
        trainer = Trainer(
            build_model(chosen),
            arguments,
            train_dataset=sentences(512, seed=0),
            eval_dataset=sentences(128, seed=1),
            callbacks=[tuning],
        )
        trainer.train(resume_from_checkpoint=tuning.checkpoint(arguments.output_dir))


def build_model(parameters: Any) -> Any:
    hidden = parameters["hidden"]
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=hidden,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=2 * hidden,
        max_position_embeddings=LENGTH,
        num_labels=2,
    )
    return BertForSequenceClassification(config)


def sentences(count: int, *, seed: int) -> list[dict[str, Any]]:
    """In place of your own data: whether the first half of the words stands in a sentence more often."""
    words = torch.randint(0, WORDS, (count, LENGTH), generator=torch.Generator().manual_seed(seed))
    labels = ((words < WORDS // 2).sum(dim=1) > LENGTH // 2).long()
    return [{"input_ids": row, "labels": label} for row, label in zip(words, labels, strict=True)]


if __name__ == "__main__":
    main()
