# tests/tools/small_models.py -- models of a few parameters for export_graph_test.py, which imports them as `model`.
# SPDX-License-Identifier: Apache-2.0
import collections
import dataclasses

import torch
from torch import nn


class Tiny(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv, self.norm, self.act, self.fc = (
            nn.Conv2d(8, width, 3),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Linear(width, 4),
        )

    def forward(self, x):
        return self.fc(self.act(self.norm(self.conv(x))).mean((2, 3)))


def tiny(width):
    return Tiny(width)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.l = nn.MultiheadAttention(32, 4, batch_first=True), nn.Linear(32, 32)

    def forward(self, x):
        return self.l(self.a(x, x, x, need_weights=False)[0])


def attention():
    return Attention()


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.r, self.l = nn.LSTM(16, 16, num_layers=2, batch_first=True), nn.Linear(16, 4)

    def forward(self, x):
        y, (h, c) = self.r(x)
        return self.l(y), h + c


def recurrent():
    return Recurrent()


class Pair(nn.Module):
    """A result with None, a list and a tuple in it."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        return None, [self.a(x), (self.b(x), {"sum": x + 1})]


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.pair, self.c = Pair(), nn.Linear(16, 4)

    def forward(self, x):
        _, (a, (b, more)) = self.pair(x)
        return {"y": self.c(a * b), "more": [more["sum"], None]}


def nested():
    return Nested()


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    states: tuple = None


class Structured(nn.Module):
    def __init__(self):
        super().__init__()
        self.pair, self.c = Pair(), nn.Linear(16, 4)

    def forward(self, x):
        states = self.pair(x)[1]
        return Output(self.c(states[0]), tuple(states))


def structured():
    return Structured()


class Slots:
    __slots__ = ("y",)

    def __init__(self, y):
        self.y = y


class Member:
    def __init__(self, y):
        self.y = y


class Function(Member):
    def __call__(self):
        return self.y


class Marked(list):
    def __init__(self, y):
        super().__init__([1])
        self.y = y


FORMS = {
    "slots": Slots,
    "function": Function,
    "closure": lambda y: lambda: y,
    "iterator": lambda y: iter([y]),
    "member": Member,
    "marked": Marked,
    "queue": lambda y: collections.deque([y]),
    "values": lambda y: {"y": y}.values(),
    "nothing": lambda y: {"dtype": torch.float32},
}


class Wrapped(nn.Module):
    """One of two results in a form of its own, or no other beside it."""

    def __init__(self, form, is_alone):
        super().__init__()
        self.form, self.is_alone = FORMS[form], is_alone
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        rest = self.form(self.b(x))
        return rest if self.is_alone else {"a": self.a(x), "rest": rest}


def wrapped(form, is_alone=False):
    return Wrapped(form, is_alone)


class Optional(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)

    def forward(self, x, mask=None, scale: float = 1.0):
        y = self.l(x) * scale  # linear
        return y if mask is None else y + mask


def optional():
    return Optional()


class Tied(nn.Module):
    """Shared weights of words and head, a layer that is called twice, a parameter without training, a buffer."""

    def __init__(self):
        super().__init__()
        self.words, self.layer, self.head = nn.Embedding(64, 16), nn.Linear(16, 16), nn.Linear(16, 64, bias=False)
        self.head.weight = self.words.weight
        self.frozen = nn.Parameter(torch.zeros(16), requires_grad=False)
        self.register_buffer("mask", torch.ones(16))

    def forward(self, ids):
        x = self.words(ids) * self.mask + self.frozen
        return self.head(self.layer(self.layer(x)))


def tied():
    return Tied()


class Unread(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.spare = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.used(x)


def unread():
    return Unread()


def rates():
    """A model that reads a tensor's values while it is made, as for dropout rates by layer."""
    values = [rate.item() for rate in torch.linspace(0, 0.5, 2)]
    return nn.Sequential(nn.Linear(8, 8), nn.Dropout(values[1]))


class Branches(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x  # branch


class Sized(nn.Module):
    def forward(self, x):
        return x[x > 0] * 2


class Elsewhere(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.ones(8, device="cpu")

    def forward(self, x):
        return x * self.scale  # device


class Needs(nn.Module):
    def forward(self, x):
        import no_such_package

        return no_such_package.double(x)


def wants_package():
    import no_such_package

    return no_such_package


def lazy():
    return nn.LazyLinear(8)


def nothing():
    return 7


def fails():
    raise KeyError("width")


constant = 7
