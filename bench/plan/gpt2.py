# bench/plan/gpt2.py -- GPT-2's architecture, for tools/python/export_graph.py: only its shapes matter here.
# SPDX-License-Identifier: Apache-2.0
"""From this folder: export_graph.py gpt2:gpt2 --input ids=8x1024:int64 --arg layers=24 -o gpt2_24_layers_2x2.json.gz"""
import math

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, hidden, heads, rows, length):
        super().__init__()
        self.rows, self.length, self.heads, self.head_dim = rows, length, heads, hidden // heads
        self.ln_1, self.ln_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.query, self.key, self.value = (nn.Linear(hidden, hidden) for _ in range(3))
        self.projection = nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.register_buffer("mask", torch.ones(1, 1, length, length, dtype=torch.bool))
        self.register_buffer("minimum", torch.tensor(-1e4))

    def by_head(self, x):
        return x.view(self.rows, self.length, self.heads, self.head_dim).permute(0, 2, 1, 3)

    def forward(self, x):
        y = self.ln_1(x)
        query, key, value = self.by_head(self.query(y)), self.by_head(self.key(y)), self.by_head(self.value(y))
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(self.head_dim)
        weights = nn.functional.softmax(torch.where(self.mask, scores, self.minimum), dim=-1)
        mixed = torch.matmul(weights, value).permute(0, 2, 1, 3).contiguous()
        x = x + self.projection(mixed.view(self.rows, self.length, self.heads * self.head_dim))
        return x + self.down(nn.functional.gelu(self.up(self.ln_2(x))))


class Gpt2(nn.Module):
    def __init__(self, layers, hidden, heads, vocab, rows, length):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, hidden), nn.Parameter(torch.empty(1, length, hidden))
        self.blocks = nn.ModuleList(Block(hidden, heads, rows, length) for _ in range(layers))
        self.ln = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


def gpt2(layers=24, hidden=1024, heads=16, vocab=50304, rows=8, length=1024):
    return Gpt2(layers, hidden, heads, vocab, rows, length)
