from torch import nn
from transformers import DataCollatorForSeq2Seq, DataCollatorWithPadding, Seq2SeqTrainingArguments

arguments = Seq2SeqTrainingArguments("out", fp16=True)
collator = DataCollatorForSeq2Seq(tokenizer, model=model)  # DIM008: flag
padded = DataCollatorWithPadding(tokenizer, **options)  # DIM008: quiet


class Gated(nn.Module):
    def __init__(self, width):
        super().__init__()
        hidden = int(width * 8 / 3)  # DIM014: flag
        self.up = nn.Linear(width, hidden)
        rounded = int(2 * 4 * width / 3)  # DIM014: quiet
        rounded = (rounded + 63) // 64 * 64
        self.down = nn.Linear(rounded, width)
