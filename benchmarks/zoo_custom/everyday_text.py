"""Language models, translators and classifiers of text as people write them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass
class GptConfig:
    block_size: int = 256
    vocab_size: int = 65
    n_layer: int = 4
    n_head: int = 4
    n_embd: int = 128


class GptBlock(nn.Module):
    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.mlp = nn.Sequential(
            nn.Linear(config.n_embd, 4 * config.n_embd),
            nn.GELU(),
            nn.Linear(4 * config.n_embd, config.n_embd),
        )
        self.n_head = config.n_head
        mask = torch.tril(torch.ones(config.block_size, config.block_size))
        self.register_buffer("bias", mask.view(1, 1, config.block_size, config.block_size))

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.size()
        q, k, v = self.c_attn(self.ln_1(x)).split(C, dim=2)
        q, k, v = (t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for t in (q, k, v))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        y = F.softmax(att, dim=-1) @ v
        x = x + self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))
        return x + self.mlp(self.ln_2(x))


class MiniGpt(nn.Module):
    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.config = config
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.vocab_size, config.n_embd),
                "wpe": nn.Embedding(config.block_size, config.n_embd),
                "h": nn.ModuleList(GptBlock(config) for _ in range(config.n_layer)),
                "ln_f": nn.LayerNorm(config.n_embd),
            }
        )
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        _b, t = idx.size()
        assert t <= self.config.block_size, f"sequence of {t}, block size is {self.config.block_size}"
        pos = torch.arange(0, t, dtype=torch.long, device=idx.device)
        x = self.transformer.wte(idx) + self.transformer.wpe(pos)
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
        return logits, loss


def build_mini_gpt() -> tuple[nn.Module, Tensor]:
    return MiniGpt(GptConfig()), torch.zeros(8, 128, dtype=torch.long)


class NeuralBigram(nn.Module):
    """The probabilistic language model of 2003: a window of 8 words, flattened."""

    def __init__(self, vocab: int = 5000, window: int = 8, dim: int = 60, hidden: int = 200) -> None:
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.hidden = nn.Linear(window * dim, hidden)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, context: Tensor) -> Tensor:
        x = self.emb(context).view(context.shape[0], -1)
        return self.out(torch.tanh(self.hidden(x)))


def build_neural_window_model() -> tuple[nn.Module, Tensor]:
    return NeuralBigram(), torch.zeros(64, 8, dtype=torch.long)


class LstmClassifier(nn.Module):
    def __init__(self, vocab_size: int = 20000, embed_dim: int = 100, hidden_dim: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim, padding_idx=0)
        self.lstm = nn.LSTM(
            embed_dim, hidden_dim, num_layers=2, bidirectional=True, batch_first=True, dropout=0.5
        )
        self.fc = nn.Linear(2 * hidden_dim, 1)

    def forward(self, text: Tensor) -> Tensor:
        _, (hidden, _) = self.lstm(self.embedding(text))
        return self.fc(torch.cat((hidden[-2], hidden[-1]), dim=1)).squeeze(1)


def build_lstm_classifier() -> tuple[nn.Module, Tensor]:
    return LstmClassifier(), torch.zeros(32, 200, dtype=torch.long)


class TextCnn(nn.Module):
    """Convolutions of several widths over an embedded sentence."""

    def __init__(self, vocab: int = 10000, dim: int = 128, filters: int = 100) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.convs = nn.ModuleList(nn.Conv2d(1, filters, (k, dim)) for k in (3, 4, 5))
        self.fc = nn.Linear(3 * filters, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).unsqueeze(1)
        pooled = [F.relu(conv(x)).squeeze(3).max(dim=2).values for conv in self.convs]
        return self.fc(torch.cat(pooled, 1))


def build_text_cnn() -> tuple[nn.Module, Tensor]:
    return TextCnn(), torch.zeros(32, 64, dtype=torch.long)


class BagClassifier(nn.Module):
    """Texts joined to one vector of words, with the offsets of their beginnings."""

    def __init__(self, vocab_size: int = 95811, embed_dim: int = 64, num_class: int = 4) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(vocab_size, embed_dim, sparse=False)
        self.fc = nn.Linear(embed_dim, num_class)

    def forward(self, text: Tensor, offsets: Tensor) -> Tensor:
        return self.fc(self.embedding(text, offsets))


def build_bag_classifier() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return BagClassifier(), (torch.zeros(512, dtype=torch.long), torch.arange(0, 512, 32))


class PositionalEncoding(nn.Module):
    def __init__(self, d_model: int, max_len: int = 5000) -> None:
        super().__init__()
        position = torch.arange(max_len).unsqueeze(1)
        scale = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2], pe[:, 0, 1::2] = torch.sin(position * scale), torch.cos(position * scale)
        self.register_buffer("pe", pe)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.pe[: x.size(0)]


class Translator(nn.Module):
    """torch.nn.Transformer as in its tutorial: time first, masks given or not."""

    def __init__(self, src_vocab: int = 8000, tgt_vocab: int = 6000, d_model: int = 256) -> None:
        super().__init__()
        self.src_emb, self.tgt_emb = nn.Embedding(src_vocab, d_model), nn.Embedding(tgt_vocab, d_model)
        self.positional = PositionalEncoding(d_model)
        self.transformer = nn.Transformer(d_model, 8, 3, 3, 512)
        self.generator = nn.Linear(d_model, tgt_vocab)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.size(0))
        source, target = self.positional(self.src_emb(src)), self.positional(self.tgt_emb(tgt))
        return self.generator(self.transformer(source, target, tgt_mask=mask))


def build_translator() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return Translator(), (torch.zeros(40, 16, dtype=torch.long), torch.zeros(30, 16, dtype=torch.long))


class WordLanguageModel(nn.Module):
    """An encoder with a causal mask, time first."""

    def __init__(self, ntoken: int = 5000, d_model: int = 200, nhead: int = 2, nlayers: int = 2) -> None:
        super().__init__()
        self.pos_encoder = PositionalEncoding(d_model)
        self.transformer_encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(d_model, nhead, 200, 0.2), nlayers
        )
        self.encoder = nn.Embedding(ntoken, d_model)
        self.d_model = d_model
        self.decoder = nn.Linear(d_model, ntoken)

    def forward(self, src: Tensor, src_mask: Tensor | None = None) -> Tensor:
        x = self.pos_encoder(self.encoder(src) * math.sqrt(self.d_model))
        if src_mask is None:
            src_mask = nn.Transformer.generate_square_subsequent_mask(len(src))
        return self.decoder(self.transformer_encoder(x, src_mask))


def build_word_language_model() -> tuple[nn.Module, Tensor]:
    return WordLanguageModel(), torch.zeros(35, 20, dtype=torch.long)


class MaskedPooling(nn.Module):
    """A Boolean mask of what is no padding, used in the attention and in the mean."""

    def __init__(self, vocab: int = 1000, dim: int = 64) -> None:
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.attn = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.norm, self.out = nn.LayerNorm(dim), nn.Linear(dim, 5)

    def forward(self, ids: Tensor, pad_mask: Tensor) -> Tensor:
        x = self.tok(ids)
        x = self.norm(x + self.attn(x, x, x, key_padding_mask=pad_mask)[0])
        keep = (~pad_mask).unsqueeze(-1)
        return self.out((x * keep).sum(1) / keep.sum(1).clamp(min=1))


def build_masked_pooling() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return MaskedPooling(), (torch.zeros(8, 50, dtype=torch.long), torch.zeros(8, 50, dtype=torch.bool))


class Seq2Seq(nn.Module):
    """A GRU encoder and an attending decoder that is fed its last word, time first."""

    def __init__(self, vocab: int = 4000, hidden: int = 256) -> None:
        super().__init__()
        self.embed_in, self.embed_out = nn.Embedding(vocab, hidden), nn.Embedding(vocab, hidden)
        self.encoder, self.decoder = nn.GRU(hidden, hidden), nn.GRU(2 * hidden, hidden)
        self.score = nn.Linear(2 * hidden, 1)
        self.out = nn.Linear(hidden, vocab)
        self.vocab = vocab

    def forward(self, src: Tensor, trg: Tensor) -> Tensor:
        outputs, hidden = self.encoder(self.embed_in(src))
        results, word = [], trg[0]
        for step in range(1, min(trg.shape[0], 6)):
            query = hidden.expand(outputs.shape[0], -1, -1)
            weights = torch.softmax(self.score(torch.cat([query, outputs], dim=2)), dim=0)
            context = (weights * outputs).sum(0, keepdim=True)
            output, hidden = self.decoder(torch.cat([self.embed_out(word)[None], context], 2), hidden)
            results.append(self.out(output[0]))
            word = trg[step]
        return torch.stack(results)


def build_seq2seq() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return Seq2Seq(), (torch.zeros(30, 16, dtype=torch.long), torch.zeros(20, 16, dtype=torch.long))


class SkipGram(nn.Module):
    """One word, one word beside it, and some that are not."""

    def __init__(self, vocab: int = 30000, dim: int = 100) -> None:
        super().__init__()
        self.center, self.context = nn.Embedding(vocab, dim), nn.Embedding(vocab, dim)

    def forward(self, target: Tensor, positive: Tensor, negatives: Tensor) -> Tensor:
        v = self.center(target)
        close = F.logsigmoid((v * self.context(positive)).sum(1))
        far = F.logsigmoid(-torch.bmm(self.context(negatives), v.unsqueeze(2)).squeeze(2)).sum(1)
        return -(close + far).mean()


def build_skip_gram() -> tuple[nn.Module, tuple[Tensor, Tensor, Tensor]]:
    words = torch.zeros(256, dtype=torch.long)
    return SkipGram(), (words, words.clone(), torch.zeros(256, 10, dtype=torch.long))


class BatchDictEncoder(nn.Module):
    """One dict, as a tokenizer and a collating function give it."""

    def __init__(self, vocab: int = 3000, dim: int = 96) -> None:
        super().__init__()
        self.word, self.position = nn.Embedding(vocab, dim), nn.Embedding(128, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 4 * dim, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.classifier = nn.Linear(dim, 3)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        ids = batch["input_ids"]
        x = self.word(ids) + self.position(torch.arange(ids.shape[1]))
        x = self.encoder(x, src_key_padding_mask=batch["attention_mask"] == 0)
        return self.classifier(x[:, 0])


def build_batch_dict_encoder() -> tuple[nn.Module, tuple[dict[str, Tensor]]]:
    ids = torch.zeros(8, 64, dtype=torch.long)
    return BatchDictEncoder(), ({"input_ids": ids, "attention_mask": torch.ones_like(ids)},)
