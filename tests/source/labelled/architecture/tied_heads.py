"""Language models that tie their head, each with a size of its own."""

from dataclasses import dataclass

from torch import nn

BERT_WORDS = 30522


@dataclass
class GPTConfig:
    vocab_size: int = 50257
    n_embd: int = 768


class GPT(nn.Module):
    def __init__(self, config: GPTConfig):
        super().__init__()
        self.transformer = nn.ModuleDict({"wte": nn.Embedding(config.vocab_size, config.n_embd)})
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight  # DIM003: flag


class Bert(nn.Module):
    def __init__(self, words=BERT_WORDS):
        super().__init__()
        self.embedding = nn.Embedding(words, 768)
        self.decoder = nn.Linear(768, words)
        self.decoder.weight = self.embedding.weight  # DIM003: flag


class Translator(nn.Module):
    def __init__(self, source, target):
        super().__init__()
        self.source = nn.Embedding(source, 512)
        self.target = nn.Embedding(target, 512)
        self.out = nn.Linear(512, target)
        self.out.weight = self.target.weight  # DIM003: flag


class Aligned(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(32000, 512)
        self.out = nn.Linear(512, 32000)
        self.out.weight = self.embedding.weight  # DIM003: quiet


class Characters(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(97, 512)
        self.out = nn.Linear(512, 97)
        self.out.weight = self.embedding.weight  # DIM003: quiet


class Measured(nn.Module):
    def __init__(self, tokenizer):
        super().__init__()
        self.embedding = nn.Embedding(len(tokenizer), 512)
        self.out = nn.Linear(512, len(tokenizer))
        self.out.weight = self.embedding.weight  # DIM003: quiet


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = nn.Linear(1001, 1001)
        self.right = nn.Linear(1001, 1001)
        self.left.weight = self.right.weight  # DIM003: quiet


class SentencePieces(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(32003, 1024)
        self.head = nn.Linear(1024, 32003, bias=False)
        self.head.weight = self.words.weight  # DIM003: flag


gpt = GPT(GPTConfig())
bert = Bert()
translator = Translator(37000, 37003)
