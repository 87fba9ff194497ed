"""How findings on loaders call what a program says of their workers."""

from __future__ import annotations

import pytest

from tclint.config.settings import Settings
from tclint.engine.sources.program import lint_text
from tclint_rules.runtime.loader_workers import NumWorkersZero

TRAINER = """\
from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments

class Collator:
    def __call__(self, samples):
        return tokenizer([sample["text"] for sample in samples], return_tensors="pt")

arguments = TrainingArguments("out"{given})
Trainer(model=model, args=arguments, train_dataset=texts, data_collator=Collator()).train()
"""


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("", "has no dataloader_num_workers"),
        (", dataloader_num_workers=0", "has dataloader_num_workers=0"),
    ],
)
def test_a_trainer_that_leaves_workers_out_and_one_that_asks_for_none(given: str, shown: str) -> None:
    [finding] = lint_text(TRAINER.format(given=given), [NumWorkersZero()], Settings())
    assert f"This TrainingArguments {shown}: `Collator`" in finding.message
